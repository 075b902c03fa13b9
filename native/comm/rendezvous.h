// From a proved connection to a link: both ranks say what they want and where they are, try shared
// memory where both are on one host, measure by ping-pong, and agree on one transport for the
// epoch.
//
// The dialogue runs in probe frames over the tcp channel; the lower rank leads:
//   both   -> Offer                    transport wanted, identity of the host
//   lower  -> ShmInvite                name of the segment, or why there is none
//   higher -> ShmReply                 the token read from it, or why it cannot be
//   lower  -> Sentence                 why the segment is not used after all, or nothing
//   lower  -> probes                   echoed; on tcp, then on shm
//   lower  -> Choice                   transport and median round trip
// The three about shm are left out where it is not tried, tcp's probes where shm alone is allowed.
#pragma once
#include <memory>
#include <string>

#include "comm/channel.h"
#include "comm/socket.h"
#include "comm/wait.h"

namespace coxswain::comm {

struct LinkEnds {
  int self, peer;
  uint64_t epoch;
};

struct OpenedLink {
  std::unique_ptr<Channel> channel;
  std::shared_ptr<Fd> socket;  // of the tcp link, or the anchor of shared memory
  LinkReport report;
};

// EngineError LINK_PROTOCOL with a sentence when the two wishes cannot be met, else as any wait.
OpenedLink agree_on_link(const LinkEnds& ends, TransportKind wanted, Fd socket, const Wait& wait);

// Dials until the peer has proved itself or the patience ends (LINK_TIMEOUT; LINK_PROTOCOL at once
// when it speaks another version).
struct Hello;
struct DialTarget {
  std::string host;
  uint16_t port;
  std::string data_key;
};
Fd dial(const DialTarget& target, const Hello& about, const Patience& patience);

// Identity of this host since its boot: equal on both ends where shared memory is worth trying.
std::array<std::byte, 32> host_identity();

}  // namespace coxswain::comm

// Who may come in: the acceptor's side of one epoch's handshakes, without sockets. Owned by the
// listener; all calls under its lock.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "comm/handshake.h"

namespace coxswain::comm {

// The epoch that is being opened, as the listener needs it.
struct DoorPlan {
  uint64_t epoch = 0;
  std::array<std::byte, 16> incarnation{};
  int rank = 0;
  std::string data_key;
  std::vector<int> dialers;  // higher ranks with a link to this one
};

class Door {
 public:
  explicit Door(DoorPlan plan) : plan_(std::move(plan)) {}

  struct Answer {
    std::string refusal;  // empty: the dialer may prove itself
    bool early = false;   // refused, but only because it is ahead of this rank
    bool reply = false;   // send `hello`: to go on, or so that it learns which version this is
    Hello hello;
  };
  Answer answer(const Hello& dialer) const;
  // Checks that the Hellos are of this door's epoch and the dialer's proof; empty and our own proof
  // in `ours`, or the refusal. A nonce proves once.
  std::string admit(const Hello& dialer, const Hello& acceptor, const Proof& proof, Proof* ours);

 private:
  DoorPlan plan_;
  std::set<Nonce> used_;  // nonces of admitted dialers; bounded by kNoncesMax
};

}  // namespace coxswain::comm

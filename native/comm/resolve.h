// Addresses of hosts. A numeric address needs no lookup; a name is looked up on a thread of its
// own, because the system's resolver knows neither deadlines nor fences: whoever waits leaves it
// behind.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/socket.h"

namespace coxswain::comm {

struct Address {
  sockaddr_storage storage;
  socklen_t size;
  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// Addresses to connect to (or, `passive`, to listen on), in the resolver's order; none and a reason
// when there are none or the deadline passed. Throws EPOCH_FENCED as Patience does.
std::vector<Address> resolve(const std::string& host, uint16_t port, bool passive,
                             const Patience& patience, std::string* reason);

}  // namespace coxswain::comm

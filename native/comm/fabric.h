// The fabric of sockets and shared memory, with what tests and logs need beyond the interface.
#pragma once
#include <memory>
#include <string>

#include "comm/comm.h"
#include "comm/listener.h"

namespace coxswain::comm {

class SocketFabric : public Fabric {
 public:
  // Connections that were closed because they did not prove themselves.
  virtual uint64_t strangers_refused() const = 0;
};

std::unique_ptr<SocketFabric> make_socket_fabric(const std::string& bind_host, RefusalLog log);

}  // namespace coxswain::comm

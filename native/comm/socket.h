// TCP sockets with deadlines: what the listener, the dialer and tcp links share. Everything is
// non-blocking; failures before a link exists are sentences, because the caller tries again.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/frame.h"

namespace coxswain::comm {

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Fd& operator=(Fd&& other) noexcept;
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd();
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

// Until when to try, and the flag that ends it with EngineError EPOCH_FENCED.
struct Patience {
  int64_t deadline_ns;
  const std::atomic<bool>* fence;

  bool over() const;
  // Throws EPOCH_FENCED when the fence is set.
  void check_fence() const;
  // Sleeps at most `ns`, less when the deadline is nearer; checks the fence.
  void sleep(int64_t ns) const;
  // Waits for poll events on fd; false when the deadline passed.
  bool wait_for(int fd, short events) const;
};

// Listens on host:port (0: any). EngineError LINK_PROTOCOL that names the address when it cannot.
Fd listen_on(const std::string& host, uint16_t port);
uint16_t local_port(int fd);
// A connected socket, or none and a reason.
Fd connect_to(const std::string& host, uint16_t port, const Patience& patience,
              std::string* reason);
// The next waiting connection, non-blocking, or none.
Fd accept_from(int listener);
// A pipe whose ends do not block. EngineError LINK_PROTOCOL when there is none.
struct Pipe {
  Fd read, write;
};
Pipe make_pipe();
// All of the bytes, or false and a reason.
bool write_all(int fd, Bytes bytes, const Patience& patience, std::string* reason);
bool read_all(int fd, MutableBytes bytes, const Patience& patience, std::string* reason);

// Small frames must not wait for acknowledgements; writes to a closed socket must not kill.
void prepare_for_frames(int fd);
// Name of the interface that holds the socket's local address, or that address.
std::string local_interface(int fd);
// "10.0.0.2:4711" of the other end, for logs.
std::string remote_address(int fd);
std::string error_text(int error);

}  // namespace coxswain::comm

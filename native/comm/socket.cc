// The system calls of connections that are not links yet, with deadlines and fences between slices.
#include "comm/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "comm/resolve.h"

namespace coxswain::comm {
namespace {

// Fences are noticed between slices.
constexpr int64_t kSliceNs = 20'000'000;
// Connections that wait to be accepted; more are the kernel's business.
constexpr int kBacklog = 128;

// Looking up the own name or address must not hold up a start for longer.
constexpr int64_t kListenResolveNs = 10'000'000'000;

// Non-blocking, and closed in every child: at once where the system can, since another thread may
// start a process between two calls.
#ifdef SOCK_CLOEXEC
Fd open_socket(int family) {
  return Fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}
Fd accept_one(int listener) {
  return Fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}
#else
Fd prepared(Fd fd) {
  if (!fd) return fd;
  const int flags = fcntl(fd.get(), F_GETFL);
  const bool ok = flags >= 0 && fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) == 0 &&
                  fcntl(fd.get(), F_SETFD, FD_CLOEXEC) == 0;
  return ok ? std::move(fd) : Fd();
}
Fd open_socket(int family) { return prepared(Fd(::socket(family, SOCK_STREAM, 0))); }
Fd accept_one(int listener) { return prepared(Fd(::accept(listener, nullptr, nullptr))); }
#endif

bool worth_waiting(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

std::string error_text(int error) { return std::system_category().message(error); }

bool Patience::over() const { return now_ns() >= deadline_ns; }

void Patience::check_fence() const {
  if (fence != nullptr && fence->load(std::memory_order_relaxed)) {
    throw EngineError("EPOCH_FENCED", "the epoch was fenced while its links were being opened");
  }
}

void Patience::sleep(int64_t ns) const {
  const int64_t until = std::min(now_ns() + ns, deadline_ns);
  for (int64_t now = now_ns(); now < until; now = now_ns()) {
    check_fence();
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(kSliceNs, until - now)));
  }
  check_fence();
}

bool Patience::wait_for(int fd, short events) const {
  for (;;) {
    check_fence();
    const int64_t left = deadline_ns - now_ns();
    if (left <= 0) return false;
    pollfd entry{fd, events, 0};
    if (poll(&entry, 1, static_cast<int>(std::min(kSliceNs, left) / 1'000'000) + 1) > 0)
      return true;
  }
}

Fd listen_on(const std::string& host, uint16_t port) {
  std::string reason;
  const Patience patience{now_ns() + kListenResolveNs, nullptr};
  for (const Address& address : resolve(host, port, true, patience, &reason)) {
    Fd fd = open_socket(address.storage.ss_family);
    if (fd && ::bind(fd.get(), address.generic(), address.size) == 0 &&
        ::listen(fd.get(), kBacklog) == 0) {
      return fd;
    }
    reason = error_text(errno);
  }
  throw EngineError("LINK_PROTOCOL", "cannot listen for peers on " + host + ":" +
                                         std::to_string(port) + ": " + reason);
}

uint16_t local_port(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  COX_CHECK(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0,
            "socket has no name");
  if (address.ss_family == AF_INET6)
    return ntohs(reinterpret_cast<sockaddr_in6*>(&address)->sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

Fd connect_to(const std::string& host, uint16_t port, const Patience& patience,
              std::string* reason) {
  for (const Address& address : resolve(host, port, false, patience, reason)) {
    Fd fd = open_socket(address.storage.ss_family);
    if (!fd ||
        (::connect(fd.get(), address.generic(), address.size) != 0 && errno != EINPROGRESS)) {
      *reason = error_text(errno);
      continue;
    }
    if (!patience.wait_for(fd.get(), POLLOUT)) {
      *reason = "no answer";
      return Fd();
    }
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return fd;
    *reason = error_text(error);
  }
  return Fd();
}

Fd accept_from(int listener) { return accept_one(listener); }

Pipe make_pipe() {
  int ends[2];
#ifdef __linux__
  const bool made = pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0;
#else
  const bool made = pipe(ends) == 0;
#endif
  if (!made) throw EngineError("LINK_PROTOCOL", "no pipe: " + error_text(errno));
  Pipe made_pipe{Fd(ends[0]), Fd(ends[1])};
#ifndef __linux__
  for (const int end : ends) {
    fcntl(end, F_SETFD, FD_CLOEXEC);
    fcntl(end, F_SETFL, O_NONBLOCK);
  }
#endif
  return made_pipe;
}

bool write_all(int fd, Bytes bytes, const Patience& patience, std::string* reason) {
  while (!bytes.empty()) {
#ifdef MSG_NOSIGNAL
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
#else
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), 0);
#endif
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(n));
    } else if (!worth_waiting(errno)) {
      *reason = error_text(errno);
      return false;
    } else if (!patience.wait_for(fd, POLLOUT)) {
      *reason = "it takes no bytes";
      return false;
    }
  }
  return true;
}

bool read_all(int fd, MutableBytes bytes, const Patience& patience, std::string* reason) {
  while (!bytes.empty()) {
    const ssize_t n = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (n > 0) {
      bytes = bytes.subspan(static_cast<size_t>(n));
    } else if (n == 0) {
      *reason = "it closed the connection";
      return false;
    } else if (!worth_waiting(errno)) {
      *reason = error_text(errno);
      return false;
    } else if (!patience.wait_for(fd, POLLIN)) {
      *reason = "no answer";
      return false;
    }
  }
  return true;
}

void prepare_for_frames(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
#ifdef SO_NOSIGPIPE
  setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
}

}  // namespace coxswain::comm

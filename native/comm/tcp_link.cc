// Non-blocking socket calls with a read buffer. Bytes that arrived before a close are still given
// out.
#include "comm/tcp_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace coxswain::comm {
namespace {

constexpr size_t kBufferBytes = 256 * 1024;
// Below this a read goes through the buffer, which saves system calls for what follows it.
constexpr size_t kDirectReadBytes = 32 * 1024;
// peek looks for more when fewer bytes than a header are left.
constexpr size_t kLowBytes = sizeof(FrameHeader);
constexpr size_t kPartsMax = 4;

#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL;
#else
constexpr int kSendFlags = 0;
#endif

}  // namespace

TcpLink::TcpLink(std::shared_ptr<Fd> socket) : socket_(std::move(socket)), buffer_(kBufferBytes) {
  prepare_for_frames(socket_->get());
}

size_t TcpLink::write_some(std::span<const Bytes> parts) {
  std::array<iovec, kPartsMax> entries{};
  size_t count = 0;
  for (const Bytes part : parts) {
    if (part.empty() || count == kPartsMax) continue;
    // The interface of C lacks the const; sendmsg does not write here.
    entries[count++] = {const_cast<std::byte*>(part.data()), part.size()};
  }
  if (count == 0 || !closed_.empty()) return 0;
  msghdr message{};
  message.msg_iov = entries.data();
  message.msg_iovlen = static_cast<decltype(message.msg_iovlen)>(count);
  const ssize_t n = ::sendmsg(socket_->get(), &message, kSendFlags);
  if (n >= 0) return static_cast<size_t>(n);
  note_error(errno);
  return 0;
}

Bytes TcpLink::peek() {
  if (end_ - begin_ < kLowBytes) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    end_ += receive(MutableBytes(buffer_).subspan(end_));
  }
  return Bytes(buffer_).subspan(begin_, end_ - begin_);
}

size_t TcpLink::read_some(MutableBytes into) {
  const size_t buffered = std::min(end_ - begin_, into.size());
  if (buffered != 0) {
    std::memcpy(into.data(), buffer_.data() + begin_, buffered);
    begin_ += buffered;
  }
  const MutableBytes rest = into.subspan(buffered);
  if (rest.size() >= kDirectReadBytes) return buffered + receive(rest);
  if (rest.empty()) return buffered;
  return buffered + Link::read_some(rest);
}

size_t TcpLink::receive(MutableBytes into) {
  if (!closed_.empty()) return 0;
  const ssize_t n = ::recv(socket_->get(), into.data(), into.size(), 0);
  if (n > 0) return static_cast<size_t>(n);
  if (n == 0) {
    closed_ = "it closed the connection";
  } else {
    note_error(errno);
  }
  return 0;
}

void TcpLink::note_error(int error) {
  if (error != EAGAIN && error != EWOULDBLOCK && error != EINTR) closed_ = error_text(error);
}

SleepHandle TcpLink::arm(uint32_t interests) {
  SleepHandle handle;
  handle.fd = socket_->get();
  if ((interests & kWantsData) != 0) handle.events |= POLLIN;
  if ((interests & kWantsRoom) != 0) handle.events |= POLLOUT;
  return handle;
}

}  // namespace coxswain::comm

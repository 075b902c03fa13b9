// Sleeping and waking (the two sides must not miss each other): the sleeper stores `sleeping`, then
// looks at the ring once more; the mover stores its position, then looks at `sleeping`. All four
// accesses are sequentially consistent, so at least one of them sees the other.
#include "comm/shm_link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "comm/futex.h"

namespace coxswain::comm {
namespace {

// Bytes are shown to the reader in pieces, so that it adds the first while the next is copied.
constexpr size_t kPublishBytes = 8 * 1024;
// The reader looks for more when fewer bytes than a header are left of what it saw last.
constexpr uint64_t kLowBytes = sizeof(FrameHeader);

[[noreturn]] void refuse_positions() {
  throw EngineError("LINK_PROTOCOL", "the peer's positions in the shared ring make no sense");
}

}  // namespace

ShmLink::ShmLink(std::unique_ptr<ShmSegment> segment, size_t side, std::shared_ptr<Fd> anchor)
    : segment_(std::move(segment)),
      anchor_(std::move(anchor)),
      out_(segment_->state().rings[side]),
      in_(segment_->state().rings[1 - side]),
      me_(segment_->state().sides[side]),
      peer_(segment_->state().sides[1 - side]),
      out_bytes_(segment_->ring_bytes(side)),
      in_bytes_(segment_->ring_bytes(1 - side)) {}

ShmLink::~ShmLink() {
  // The peer sees the anchor close; waking it spares it the rest of its slice of sleep.
  anchor_.reset();
  peer_.bell.fetch_add(1);
  wake_word(peer_.bell);
}

size_t ShmLink::room(size_t wanted) {
  if (kRingBytes - (written_ - read_by_peer_) < wanted) {
    read_by_peer_ = out_.read.load();
    if (written_ - read_by_peer_ > kRingBytes) refuse_positions();
  }
  return kRingBytes - static_cast<size_t>(written_ - read_by_peer_);
}

size_t ShmLink::write_some(std::span<const Bytes> parts) {
  size_t wanted = 0;
  for (const Bytes part : parts) wanted += part.size();
  const size_t taken = std::min(wanted, room(wanted));
  size_t left = taken;
  size_t unpublished = 0;
  for (Bytes part : parts) {
    part = part.first(std::min(part.size(), left));
    left -= part.size();
    while (!part.empty()) {
      const size_t at = static_cast<size_t>(written_ % kRingBytes);
      const size_t n = std::min({part.size(), kRingBytes - at, kPublishBytes - unpublished});
      std::memcpy(out_bytes_ + at, part.data(), n);
      written_ += n;
      unpublished += n;
      part = part.subspan(n);
      if (unpublished == kPublishBytes) {
        publish();
        unpublished = 0;
      }
    }
  }
  if (unpublished != 0) publish();
  return taken;
}

void ShmLink::publish() {
  out_.written.store(written_);
  wake_peer(kWantsData);
}

void ShmLink::wake_peer(uint32_t interest) {
  if ((peer_.sleeping.load() & interest) == 0) return;
  if (peer_.sleeping.exchange(0) == 0) return;
  peer_.bell.fetch_add(1);
  wake_word(peer_.bell);
}

Bytes ShmLink::peek() {
  if (written_by_peer_ - read_ < kLowBytes) {
    written_by_peer_ = in_.written.load();
    if (written_by_peer_ - read_ > kRingBytes) refuse_positions();
  }
  const size_t at = static_cast<size_t>(read_ % kRingBytes);
  return {in_bytes_ + at, std::min(static_cast<size_t>(written_by_peer_ - read_), kRingBytes - at)};
}

void ShmLink::consume(size_t bytes) {
  read_ += bytes;
  in_.read.store(read_);
  wake_peer(kWantsRoom);
}

SleepHandle ShmLink::arm(uint32_t interests) {
  SleepHandle handle;
  handle.word = &me_.bell;
  handle.value = me_.bell.load();
  me_.sleeping.store(interests);
  return handle;
}

void ShmLink::disarm() { me_.sleeping.store(0); }

std::string ShmLink::closed() {
  std::byte byte;
  const ssize_t n = ::recv(anchor_->get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n > 0) return "it sent bytes over the connection that only shows it is alive";
  if (n == 0) return "it closed the connection";
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return {};
  return error_text(errno);
}

}  // namespace coxswain::comm

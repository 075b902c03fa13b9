// The thread-safe half of packet links: queues what arrives until the executor takes it.
#include <cstring>

#include "base/clock.h"
#include "comm/packet_link.h"

namespace coxswain::comm {
namespace {

// What may wait: a full window of data in small packets, and as many credits.
constexpr size_t kWaitingBytesMax = 2 * kPacketWindow + kPacketWindow / kFrameAlign;
constexpr size_t kWaitingPacketsMax = 64 * 1024;

FrameHeader header_of(Bytes packet) {
  FrameHeader header;
  if (packet.size() < sizeof header) {
    header.magic = 0;
  } else {
    std::memcpy(&header, packet.data(), sizeof header);
  }
  return header;
}

}  // namespace

void PacketInbox::deliver(Bytes packet) {
  deliver_later(std::vector<std::byte>(packet.begin(), packet.end()), 0);
}

void PacketInbox::deliver_later(std::vector<std::byte> packet, int64_t not_before_ns) {
  std::shared_ptr<Bell> bell;
  {
    const std::lock_guard lock(mutex_);
    const FrameHeader header = header_of(packet);
    // What has no header is kept: the link refuses it by name.
    if (header.magic == kFrameMagic && header.epoch < epoch_) return;
    if (waiting_bytes_ + packet.size() > kWaitingBytesMax ||
        waiting_.size() == kWaitingPacketsMax) {
      if (reason_.empty()) reason_ = "it sent more than the receiver had granted";
      closed_ = true;
    } else {
      waiting_bytes_ += packet.size();
      waiting_.push_back({std::move(packet), not_before_ns});
      count_ = waiting_.size();
    }
    bell = bell_;
  }
  if (bell) bell->ring();
}

void PacketInbox::close(const std::string& reason) {
  std::shared_ptr<Bell> bell;
  {
    const std::lock_guard lock(mutex_);
    if (reason_.empty()) reason_ = reason.empty() ? "the connection was closed" : reason;
    closed_ = true;
    bell = bell_;
  }
  if (bell) bell->ring();
}

void PacketInbox::attach(uint64_t epoch, std::shared_ptr<Bell> bell) {
  const std::lock_guard lock(mutex_);
  epoch_ = epoch;
  bell_ = std::move(bell);
  reason_.clear();
  closed_ = false;
  std::erase_if(waiting_, [&](const Waiting& waiting) {
    const FrameHeader header = header_of(waiting.bytes);
    const bool old = header.magic == kFrameMagic && header.epoch < epoch;
    if (old) waiting_bytes_ -= waiting.bytes.size();
    return old;
  });
  count_ = waiting_.size();
}

void PacketInbox::detach() {
  const std::lock_guard lock(mutex_);
  bell_.reset();
}

bool PacketInbox::take(std::vector<std::byte>& packet) {
  if (count_.load(std::memory_order_acquire) == 0) return false;
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return false;
  Waiting& first = waiting_.front();
  if (first.not_before_ns != 0 && now_ns() < first.not_before_ns) return false;
  const FrameHeader header = header_of(first.bytes);
  if (header.magic == kFrameMagic && header.epoch > epoch_) return false;
  packet = std::move(first.bytes);
  waiting_bytes_ -= packet.size();
  waiting_.pop_front();
  count_ = waiting_.size();
  return true;
}

std::string PacketInbox::closed() {
  if (!closed_) return {};
  const std::lock_guard lock(mutex_);
  return reason_;
}

}  // namespace coxswain::comm

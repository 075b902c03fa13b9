// A link over something that carries whole packets in order (a gRPC stream, a queue in one
// process): cuts the frame stream into packets, each in an envelope with epoch and sequence number.
//
// Flow control: the receiver grants credit for what it took, so at most kPacketWindow bytes are
// under way and no queue grows beyond it. A packet of an older epoch is dropped; one out of
// sequence, or more than the window, is LINK_PROTOCOL.
#pragma once
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/bell.h"
#include "comm/link.h"

namespace coxswain::comm {

inline constexpr size_t kPacketPayload = 64 * 1024;
inline constexpr size_t kPacketWindow = 4 * 1024 * 1024;

// Where packets of one peer arrive, from any thread, and wait for the link of their epoch. Outlives
// links: packets of an epoch that is not attached yet are kept.
class PacketInbox {
 public:
  void deliver(Bytes packet);
  // As deliver, but the packet becomes visible only at `not_before_ns` (for injected delays).
  void deliver_later(std::vector<std::byte> packet, int64_t not_before_ns);
  void close(const std::string& reason);

  // The link's side. attach forgets older epochs and an earlier close.
  void attach(uint64_t epoch, std::shared_ptr<Bell> bell);
  void detach();
  // False when nothing of the attached epoch waits.
  bool take(std::vector<std::byte>& packet);
  std::string closed();

 private:
  struct Waiting {
    std::vector<std::byte> bytes;
    int64_t not_before_ns;
  };
  std::mutex mutex_;
  std::deque<Waiting> waiting_;
  size_t waiting_bytes_ = 0;
  std::atomic<size_t> count_{0};
  std::atomic<bool> closed_{false};
  uint64_t epoch_ = 0;
  std::shared_ptr<Bell> bell_;
  std::string reason_;
};

struct PacketEnds {
  int self, peer;
  uint64_t epoch;
};

class PacketLink final : public Link {
 public:
  using Post = std::function<void(std::vector<std::byte> packet)>;
  PacketLink(const PacketEnds& ends, std::shared_ptr<PacketInbox> inbox, std::shared_ptr<Bell> bell,
             Post post);
  ~PacketLink() override;

  size_t write_some(std::span<const Bytes> parts) override;
  void flush() override;
  Bytes peek() override;
  void consume(size_t bytes) override;
  SleepHandle arm(uint32_t interests) override;
  std::string closed() override { return inbox_->closed(); }

 private:
  std::vector<std::byte> envelope(FrameKind kind, size_t reserve);
  void post(std::vector<std::byte> packet);
  // Takes all that arrived: credits count at once, stream bytes wait their turn.
  void take_packets();
  void open_packet(std::vector<std::byte> packet);

  const PacketEnds ends_;
  std::shared_ptr<PacketInbox> inbox_;
  std::shared_ptr<Bell> bell_;
  Post post_;
  std::vector<std::byte> outgoing_;  // envelope and what was written since the last post
  uint64_t written_ = 0, granted_ = kPacketWindow;
  uint64_t next_out_ = 0, next_in_ = 0;
  std::deque<std::vector<std::byte>> arrivals_;  // with their envelopes; at most a window
  size_t at_ = sizeof(FrameHeader);              // next unread byte of the first
  uint64_t arrived_ = 0, consumed_ = 0, credited_ = 0;
};

}  // namespace coxswain::comm

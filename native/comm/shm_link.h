// A link over shared memory: one ring a direction, written by one side and read by the other.
// Waking is a futex in the segment; the TCP connection over which the segment was agreed stays open
// as the sign of life, since a killed process closes its sockets but leaves memory as it was.
#pragma once
#include <memory>
#include <string>

#include "comm/link.h"
#include "comm/shm_segment.h"
#include "comm/socket.h"

namespace coxswain::comm {

class ShmLink final : public Link {
 public:
  // `side`: 0 for the lower rank, 1 for the higher.
  ShmLink(std::unique_ptr<ShmSegment> segment, size_t side, std::shared_ptr<Fd> anchor);
  ~ShmLink() override;

  size_t write_some(std::span<const Bytes> parts) override;
  Bytes peek() override;
  void consume(size_t bytes) override;
  SleepHandle arm(uint32_t interests) override;
  void disarm() override;
  std::string closed() override;

 private:
  size_t room(size_t wanted);
  void publish();
  void wake_peer(uint32_t interest);

  std::unique_ptr<ShmSegment> segment_;
  std::shared_ptr<Fd> anchor_;
  RingState& out_;
  RingState& in_;
  SideState& me_;
  SideState& peer_;
  std::byte* out_bytes_;
  std::byte* in_bytes_;
  // Own positions, and the last seen of the other side's, which spare its cache line.
  uint64_t written_ = 0, read_by_peer_ = 0;
  uint64_t read_ = 0, written_by_peer_ = 0;
};

}  // namespace coxswain::comm

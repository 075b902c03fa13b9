// One piece of memory shared by two ranks of a host for one epoch: two rings and two bells.
//
// Created by the lower rank under a random name, exclusively, mode 0600; opened by the higher rank,
// which learnt the name over the authenticated connection; then unlinked, so that nothing outlives
// the processes. The creator holds a file lock while the name exists, by which a later process
// tells the rest of a crash from a segment that is being opened.
//
//   offset  size
//        0    32  token: random bytes; reading them proves that both ranks share this memory
//       64   128  ring 0, lower to higher rank: bytes written, bytes read (each on its own line)
//      192   128  ring 1, higher to lower rank
//      320    64  side 0, lower rank: bell, sleeping
//      384    64  side 1, higher rank
//     4096     n  bytes of ring 0, then of ring 1
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace coxswain::comm {

// Holds the largest direct exchange with its header three times over, and stays in a core's cache.
inline constexpr size_t kRingBytes = 128 * 1024;
using ShmToken = std::array<std::byte, 32>;

struct RingState {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
};
struct SideState {
  alignas(64) std::atomic<uint32_t> bell;  // counts wakes; the futex word
  std::atomic<uint32_t> sleeping;          // of Interest, 0 while awake; cleared by who wakes
};
struct SegmentState {
  ShmToken token;
  RingState rings[2];
  SideState sides[2];
};
static_assert(sizeof(RingState) == 128 && sizeof(SideState) == 64 && sizeof(SegmentState) == 448);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

class ShmSegment {
 public:
  // EngineError LINK_PROTOCOL with the system's reason when this host has no room or no such
  // memory.
  static std::unique_ptr<ShmSegment> create();
  // Refuses names that create() does not make.
  static std::unique_ptr<ShmSegment> open(const std::string& name);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  const std::string& name() const { return name_; }
  // Takes the name away; both mappings stay.
  void unlink();
  SegmentState& state() { return *static_cast<SegmentState*>(base_); }
  std::byte* ring_bytes(size_t ring);

 private:
  ShmSegment(std::string name, int fd, bool owner);
  std::string name_;
  int lock_fd_ = -1;  // held by the creator while the name exists
  void* base_ = nullptr;
};

// Removes segments that a killed process left between creating and unlinking.
void sweep_stale_segments();

}  // namespace coxswain::comm

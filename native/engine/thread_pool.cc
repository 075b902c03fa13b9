#include "engine/thread_pool.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "engine/spin.h"

namespace coxswain::engine {
namespace {

constexpr uint64_t kPieceBits = 20;
constexpr uint64_t kPieceMask = (uint64_t{1} << kPieceBits) - 1;
// Threads that find no piece left still count the ticket up by one each; the room is never used up.
constexpr int64_t kPiecesMax = (int64_t{1} << kPieceBits) - 4096;

uint64_t next_of(uint64_t ticket) { return ticket & kPieceMask; }
uint64_t pieces_of(uint64_t ticket) { return (ticket >> kPieceBits) & kPieceMask; }
uint64_t generation_of(uint64_t ticket) { return ticket >> (2 * kPieceBits); }

}  // namespace

ThreadPool::ThreadPool(int threads, int64_t spin_ns) : spin_ns_(spin_ns) {
  COX_CHECK(threads >= 1 && threads <= 1024, "a thread pool has between 1 and 1024 threads");
  for (int thread = 1; thread < threads; ++thread) {
    workers_.emplace_back([this, thread] { work(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  generation_.fetch_add(1);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_erased(int64_t pieces, Invoke call, const void* task) {
  invoke_ = call;
  task_ = task;
  // More pieces than a ticket counts are done in batches.
  for (int64_t first = 0; first < pieces; first += kPiecesMax) {
    run_batch(first, std::min(kPiecesMax, pieces - first));
  }
}

void ThreadPool::run_batch(int64_t first, int64_t pieces) {
  first_ = first;
  done_.store(0, std::memory_order_relaxed);
  const uint64_t generation =
      (generation_of(ticket_.load(std::memory_order_relaxed)) + 1) & 0xffffff;
  ticket_.store((generation << (2 * kPieceBits)) | (static_cast<uint64_t>(pieces) << kPieceBits));
  generation_.fetch_add(1);
  generation_.notify_all();
  take_pieces(0);
  const uint32_t wanted = static_cast<uint32_t>(pieces);
  Spin spin;
  for (;;) {
    const uint32_t done = done_.load(std::memory_order_acquire);
    if (done == wanted) return;
    if (!spin.again(spin_ns_.load(std::memory_order_relaxed)))
      done_.wait(done, std::memory_order_acquire);
  }
}

bool ThreadPool::take_pieces(int thread) {
  bool any = false;
  for (;;) {
    const uint64_t seen = ticket_.load(std::memory_order_acquire);
    if (next_of(seen) >= pieces_of(seen)) return any;
    const uint64_t mine = ticket_.fetch_add(1, std::memory_order_acq_rel);
    if (next_of(mine) >= pieces_of(mine)) return any;
    // The job cannot end before this piece is counted as done, so its fields are stable here.
    const uint32_t pieces = static_cast<uint32_t>(pieces_of(mine));
    invoke_(task_, first_ + static_cast<int64_t>(next_of(mine)), thread);
    any = true;
    const uint32_t done = done_.fetch_add(1, std::memory_order_acq_rel) + 1;
    if (done == pieces && thread != 0) done_.notify_one();
  }
}

void ThreadPool::work(int thread) {
  uint32_t seen = generation_.load();
  while (!stop_.load(std::memory_order_relaxed)) {
    if (take_pieces(thread)) continue;
    Spin spin;
    for (;;) {
      const uint32_t now = generation_.load(std::memory_order_acquire);
      if (now != seen) {
        seen = now;
        break;
      }
      if (!spin.again(spin_ns_.load(std::memory_order_relaxed))) generation_.wait(seen);
    }
  }
}

}  // namespace coxswain::engine

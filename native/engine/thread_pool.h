// The engine's workers: run(pieces, task) executes task(piece, thread) for every piece on the
// calling thread and the workers, and returns when all are done.
//
// Pieces come from one counter, so no operation waits for the fixed share of a preempted thread;
// which thread takes which piece never changes a result. Workers spin for a
// bounded time between calls and then sleep; nothing is allocated after construction. Owner: the
// executor thread alone calls run() and set_spin().
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace coxswain::engine {

class ThreadPool {
 public:
  // threads >= 1: the caller counts as thread 0. spin_ns: how long an idle worker spins before it
  // sleeps.
  ThreadPool(int threads, int64_t spin_ns);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // How long an idle worker spins from now on: long inside a step, short between steps.
  void set_spin(int64_t spin_ns) { spin_ns_.store(spin_ns, std::memory_order_relaxed); }
  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  template <typename Task>
  void run(int64_t pieces, const Task& task) {
    if (pieces <= 1 || workers_.empty()) {
      for (int64_t piece = 0; piece < pieces; ++piece) task(piece, 0);
      return;
    }
    run_erased(pieces, &invoke<Task>, &task);
  }

 private:
  using Invoke = void (*)(const void* task, int64_t piece, int thread);
  template <typename Task>
  static void invoke(const void* task, int64_t piece, int thread) {
    (*static_cast<const Task*>(task))(piece, thread);
  }
  void run_erased(int64_t pieces, Invoke invoke, const void* task);
  void run_batch(int64_t first, int64_t pieces);
  void work(int thread);
  // Takes pieces of the current job until none is left; true when it took any.
  bool take_pieces(int thread);

  // generation (24 bits) | pieces (20) | next piece (20): one fetch_add tells a thread both which
  // job it joined and whether its piece exists, so a late worker can never touch a finished job.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<uint32_t> done_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};  // what sleepers wait on
  std::atomic<bool> stop_{false};
  Invoke invoke_ = nullptr;
  const void* task_ = nullptr;
  int64_t first_ = 0;  // piece that the ticket's piece 0 is
  std::atomic<int64_t> spin_ns_;
  std::vector<std::thread> workers_;
};

}  // namespace coxswain::engine

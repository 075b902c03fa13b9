// Waiting: spin, then sleep, with deadline and fence; written once for all transports.
// An operation that cannot move spins for Wait::spin_ns, then sleeps in slices short enough that
// the fence is noticed within 50 ms, and finally fails with an error that names whom it waited for.
#pragma once
#include <atomic>
#include <vector>

#include "comm/channel.h"

namespace coxswain::comm {

// One thing an operation cannot go on without.
struct Pending {
  Channel* channel;
  uint32_t interests;   // of Interest
  size_t moved, total;  // payload bytes, for the error text; total 0: not known yet
};

// Something that moves bytes in small pieces until it is done.
class Operation {
 public:
  enum class Progress { kDone, kMoved, kStuck };
  virtual ~Operation() = default;
  virtual Progress advance() = 0;
  // What advance() was stuck on, one entry a channel; nothing when bytes have arrived since.
  virtual void list_pending(std::vector<Pending>& pending) = 0;
};

// Runs operations of one plane to their end. Keeps scratch, so that waiting allocates nothing.
class Waiter {
 public:
  // `revoked` turns true when the links of this epoch were destroyed by a later one.
  Waiter(int rank, uint64_t epoch, const std::atomic<bool>* revoked);
  // EngineError LINK_TIMEOUT, LINK_CLOSED, EPOCH_FENCED, and what advance() throws.
  void run(Operation& operation, const Wait& wait);
  uint64_t waited_ns() const { return waited_ns_; }

 private:
  enum class State { kSpinning, kArmed, kWoken };
  void idle(Operation& operation, const Wait& wait);
  bool keep_spinning(Operation& operation, const Wait& wait);
  void arm(Operation& operation);
  void disarm();
  void sleep(const Wait& wait);
  // True the first time a peer is seen closed: what it sent before may still be on its way in.
  bool peer_gone(const Wait& wait);
  // Throws LINK_TIMEOUT unless nothing is pending any more.
  void time_out(const Wait& wait, int64_t now);

  const int rank_;
  const uint64_t epoch_;
  const std::atomic<bool>* revoked_;
  State state_ = State::kSpinning;
  uint32_t spins_ = 0;
  int64_t wait_start_ = 0;  // of the current operation, 0: it has not waited yet
  int64_t spin_start_ = 0;
  bool closed_seen_ = false;
  std::vector<Pending> pending_;
  std::vector<SleepHandle> handles_;
  uint64_t waited_ns_ = 0;
};

// Sleeps until one of the handles may move, at most timeout_ns; may return early.
void sleep_on(std::span<const SleepHandle> handles, int64_t timeout_ns);

}  // namespace coxswain::comm

// The loop around every operation: advance, spin, arm, advance once more, sleep. Errors are
// composed here, where both the place in the model and the progress in bytes are known.
#include "comm/wait.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace coxswain::comm {
namespace {

// A fence must be noticed within 50 ms, so no sleep lasts longer than this.
constexpr int64_t kSleepSliceNs = 20'000'000;
// Reading the clock costs as much as several spins.
constexpr uint32_t kSpinsPerClock = 32;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

std::string fenced_text(int rank, uint64_t epoch, const Wait& wait) {
  return "rank " + std::to_string(rank) + " left its work because the epoch was fenced " +
         describe_place(epoch, wait);
}

// "step 812, layer 7, attention"
std::string step_text(const Wait& wait) {
  std::string text = "step " + std::to_string(wait.step);
  if (wait.layer >= 0) text += ", layer " + std::to_string(wait.layer);
  if (*wait.phase != '\0') text += std::string(", ") + wait.phase;
  return text;
}

std::string bytes_text(uint64_t epoch, const Pending& pending) {
  std::string text = "(epoch " + std::to_string(epoch) + ", " + std::to_string(pending.moved);
  if (pending.total != 0) text += " of " + std::to_string(pending.total);
  return text + " bytes)";
}

}  // namespace

Waiter::Waiter(int rank, uint64_t epoch, const std::atomic<bool>* revoked)
    : rank_(rank), epoch_(epoch), revoked_(revoked) {}

void Waiter::run(Operation& operation, const Wait& wait) {
  state_ = State::kSpinning;
  spins_ = 0;
  wait_start_ = spin_start_ = 0;
  closed_seen_ = false;
  const auto count_time = [&] {
    disarm();
    if (wait_start_ != 0) waited_ns_ += static_cast<uint64_t>(now_ns() - wait_start_);
  };
  try {
    for (;;) {
      const Operation::Progress progress = operation.advance();
      if (progress == Operation::Progress::kDone) break;
      if (progress == Operation::Progress::kStuck) {
        idle(operation, wait);
      } else if (spins_ != 0 || state_ != State::kSpinning) {
        disarm();
        state_ = State::kSpinning;
        spins_ = 0;
        spin_start_ = 0;
      }
    }
  } catch (...) {
    count_time();
    throw;
  }
  count_time();
}

void Waiter::idle(Operation& operation, const Wait& wait) {
  const bool fenced = wait.fence != nullptr && wait.fence->load(std::memory_order_relaxed);
  if (fenced || (revoked_ != nullptr && revoked_->load(std::memory_order_relaxed))) {
    throw EngineError("EPOCH_FENCED", fenced_text(rank_, epoch_, wait));
  }
  switch (state_) {
    case State::kSpinning:
      if (!keep_spinning(operation, wait)) arm(operation);
      return;
    case State::kWoken:
      arm(operation);
      return;
    case State::kArmed:
      if (!peer_gone(wait)) sleep(wait);
      disarm();
      state_ = State::kWoken;
  }
}

bool Waiter::keep_spinning(Operation& operation, const Wait& wait) {
  if (spins_++ % kSpinsPerClock == 0) {
    const int64_t now = now_ns();
    if (wait_start_ == 0) wait_start_ = now;
    if (spin_start_ == 0) spin_start_ = now;
    if (now >= wait.deadline_ns) {
      pending_.clear();
      operation.list_pending(pending_);
      time_out(wait, now);
    }
    if (now - spin_start_ >= wait.spin_ns) return false;
  }
  pause_cpu();
  return true;
}

void Waiter::arm(Operation& operation) {
  pending_.clear();
  handles_.clear();
  operation.list_pending(pending_);
  if (pending_.empty()) return;
  for (const Pending& pending : pending_) {
    handles_.push_back(pending.channel->link().arm(pending.interests));
  }
  state_ = State::kArmed;
}

void Waiter::disarm() {
  if (state_ != State::kArmed) return;
  for (const Pending& pending : pending_) pending.channel->link().disarm();
}

void Waiter::sleep(const Wait& wait) {
  const int64_t now = now_ns();
  if (now >= wait.deadline_ns) time_out(wait, now);
  sleep_on(handles_, std::min(kSleepSliceNs, wait.deadline_ns - now));
}

bool Waiter::peer_gone(const Wait& wait) {
  for (const Pending& pending : pending_) {
    const std::string reason = pending.channel->link().closed();
    if (reason.empty()) continue;
    if (!closed_seen_) {
      closed_seen_ = true;
      return true;
    }
    throw EngineError("LINK_CLOSED", "rank " + std::to_string(rank_) + " lost rank " +
                                         std::to_string(pending.channel->peer()) + " in " +
                                         step_text(wait) + " " + bytes_text(epoch_, pending) +
                                         ": " + reason);
  }
  return false;
}

void Waiter::time_out(const Wait& wait, int64_t now) {
  if (pending_.empty()) return;
  // Whoever sends nothing is the culprit; a peer that merely does not take bytes may wait for it.
  const auto silent = std::find_if(pending_.begin(), pending_.end(), [](const Pending& p) {
    return (p.interests & kWantsData) != 0;
  });
  const Pending& culprit = silent != pending_.end() ? *silent : pending_.front();
  const int64_t waited = now - (wait_start_ == 0 ? now : wait_start_);
  throw EngineError("LINK_TIMEOUT",
                    "rank " + std::to_string(rank_) + " waited " +
                        std::to_string((waited + 500'000) / 1'000'000) + " ms for rank " +
                        std::to_string(culprit.channel->peer()) +
                        (culprit.interests == kWantsRoom ? " to take bytes in " : " in ") +
                        step_text(wait) + " " + bytes_text(epoch_, culprit));
}

}  // namespace coxswain::comm

// A counter under a lock: a ring that comes before the wait is seen, because the counter differs.
#include "comm/bell.h"

#include <chrono>

namespace coxswain::comm {

void Bell::ring() {
  {
    const std::lock_guard lock(mutex_);
    ++rings_;
  }
  rung_.notify_all();
}

uint64_t Bell::rings() {
  const std::lock_guard lock(mutex_);
  return rings_;
}

void Bell::wait(uint64_t seen, int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  // The system clock, because thread sanitisers do not know the call behind the steady one; a jump
  // of that clock costs at most one slice of a wait whose deadline is kept elsewhere.
  const auto until = std::chrono::system_clock::now() + std::chrono::nanoseconds(timeout_ns);
  rung_.wait_until(lock, until, [&] { return rings_ != seen; });
}

}  // namespace coxswain::comm

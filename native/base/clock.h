// Monotonic time for deadlines and measurements (nanoseconds since an arbitrary start).
#pragma once
#include <chrono>
#include <cstdint>

namespace coxswain {
inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
}  // namespace coxswain

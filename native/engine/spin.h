// A bounded spin: again() says whether to look once more or to go to sleep.
#pragma once
#include <cstdint>

#include "base/clock.h"

namespace coxswain::engine {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Spin {
 public:
  bool again(int64_t budget_ns) {
    cpu_relax();
    // The clock costs as much as a few turns, so it is read once in 32.
    if ((++turns_ & 31) != 0) return true;
    const int64_t now = now_ns();
    if (started_ns_ == 0) started_ns_ = now;
    return now - started_ns_ < budget_ns;
  }

 private:
  int64_t started_ns_ = 0;
  uint32_t turns_ = 0;
};

}  // namespace coxswain::engine

// The arithmetic peaks: loops of one instruction on registers, enough of them at once to hide its
// latency. Each instruction set has a file of its own with its own compiler flags; an empty list
// means that this build has none.
#pragma once
#include <cstdint>
#include <span>

#include "limits/limits.h"

namespace coxswain::limits {

enum class Kind { kInt8, kBf16, kF32 };

struct Loop {
  Kind kind;
  const char* instruction;
  bool (*available)();
  double operations;  // of one iteration
  void (*run)(int64_t iterations);
};

std::span<const Loop> avx2_loops();
std::span<const Loop> avx512_loops();
std::span<const Loop> neon_loops();
std::span<const Loop> plain_loops();

// The best of the loops of that kind which this CPU can run.
Peak measure_peak(Kind kind, int threads);

}  // namespace coxswain::limits

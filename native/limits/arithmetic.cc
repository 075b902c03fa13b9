#include "limits/arithmetic.h"

#include <array>

#include "limits/team.h"

namespace coxswain::limits {
namespace {

constexpr int64_t kFirstIterations = 2000;
constexpr int64_t kRoundNs = 4'000'000;
constexpr int kRounds = 8;

bool always() { return true; }

// What the compiler makes of plain loops: the floor on CPUs that the other files do not know.
void plain_f32(int64_t iterations) {
  using Floats __attribute__((vector_size(16))) = float;
  Floats sums[8] = {};
  Floats a = {1, 1, 1, 1};
  Floats b = {0.5f, 0.5f, 0.5f, 0.5f};
  for (int64_t i = 0; i < iterations; ++i) {
    for (Floats& sum : sums) sum = sum * a + b;
    __asm__ volatile("" ::: "memory");
  }
  volatile float kept = 0;
  for (const Floats& sum : sums) kept = kept + sum[0];
}

// Long enough that starting and stopping do not count.
int64_t iterations_for(const Loop& loop) {
  int64_t iterations = kFirstIterations;
  while (true) {
    const int64_t ns = fastest_round(1, 2, [](int) {}, [&](int) { loop.run(iterations); });
    if (ns >= kRoundNs / 4) {
      return static_cast<int64_t>(static_cast<double>(iterations) * kRoundNs /
                                  static_cast<double>(ns)) +
             1;
    }
    iterations *= 4;
  }
}

}  // namespace

std::span<const Loop> plain_loops() {
  static constexpr std::array kLoops = {
      Loop{Kind::kF32, "f32 multiply, add", always, 8 * 4 * 2, plain_f32}};
  return kLoops;
}

Peak measure_peak(Kind kind, int threads) {
  Peak best;
  for (const auto loops : {avx512_loops(), avx2_loops(), neon_loops(), plain_loops()}) {
    for (const Loop& loop : loops) {
      if (loop.kind != kind || !loop.available()) continue;
      const int64_t iterations = iterations_for(loop);
      const int64_t ns =
          fastest_round(threads, kRounds, [](int) {}, [&](int) { loop.run(iterations); });
      const double rate = loop.operations * static_cast<double>(iterations) * threads * 1e9 /
                          static_cast<double>(ns);
      if (rate > best.per_second) best = {rate, loop.instruction};
    }
  }
  return best;
}

}  // namespace coxswain::limits

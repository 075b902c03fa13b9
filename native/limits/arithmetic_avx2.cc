// AVX2: byte products through vpmaddubsw + vpmaddwd + vpaddd, and f32 fused multiply-add.
#include "limits/arithmetic.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace coxswain::limits {
namespace {

constexpr int kSums = 12;  // with the operands all sixteen registers are in use

// Registers that the optimiser must take for read and changed: without it equal sums become one,
// and loops fold.
template <typename Vector>
inline void keep(Vector& value) {
  __asm__ volatile("" : "+x"(value));
}
template <typename Vector>
inline void keep(Vector (&values)[kSums]) {
#pragma GCC unroll 16
  for (Vector& value : values) __asm__ volatile("" : "+x"(value));
}

bool available() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

void bytes(int64_t iterations) {
  __m256i sums[kSums] = {};
  __m256i a = _mm256_set1_epi8(1);
  __m256i b = _mm256_set1_epi8(2);
  const __m256i ones = _mm256_set1_epi16(1);
  keep(sums);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int s = 0; s < kSums; ++s) {
      __m256i pairs = _mm256_maddubs_epi16(a, b);
      keep(pairs);  // equal every time; not to be computed once
      sums[s] = _mm256_add_epi32(sums[s], _mm256_madd_epi16(pairs, ones));
    }
    keep(a);
  }
  keep(sums);
}

void floats(int64_t iterations) {
  __m256 sums[kSums] = {};
  __m256 a = _mm256_set1_ps(0.5f);
  const __m256 b = _mm256_set1_ps(0.25f);
  keep(sums);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (int s = 0; s < kSums; ++s) sums[s] = _mm256_fmadd_ps(sums[s], a, b);
    keep(a);
  }
  keep(sums);
}

constexpr Loop kLoops[] = {
    {Kind::kInt8, "avx2 vpmaddubsw", available, kSums * 64.0, bytes},
    {Kind::kF32, "avx2 vfmadd", available, kSums * 16.0, floats},
};

}  // namespace

std::span<const Loop> avx2_loops() { return kLoops; }

}  // namespace coxswain::limits
#else
namespace coxswain::limits {
std::span<const Loop> avx2_loops() { return {}; }
}  // namespace coxswain::limits
#endif

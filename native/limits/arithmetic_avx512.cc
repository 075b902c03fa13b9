// AVX-512: vpdpbusd, vdpbf16ps and f32 fused multiply-add on whole registers. Tile units (AMX) are
// not measured: no kernel uses them.
#include "limits/arithmetic.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace coxswain::limits {
namespace {

constexpr int kSums = 16;

// Registers that the optimiser must take for read and changed: without it equal sums become one,
// and loops fold.
template <typename Vector>
inline void keep(Vector& value) {
  __asm__ volatile("" : "+v"(value));
}
template <typename Vector>
inline void keep(Vector (&values)[kSums]) {
#pragma GCC unroll 16
  for (Vector& value : values) __asm__ volatile("" : "+v"(value));
}

bool has_vnni() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vnni");
}
bool has_bf16() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16");
}
bool has_f32() { return __builtin_cpu_supports("avx512f"); }

void bytes(int64_t iterations) {
  __m512i sums[kSums];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi8(1);
  const __m512i b = _mm512_set1_epi8(2);
  keep(sums);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) sums[s] = _mm512_dpbusd_epi32(sums[s], a, b);
    keep(a);
  }
  keep(sums);
}

void brains(int64_t iterations) {
  __m512 sums[kSums];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  __m512i bits = _mm512_set1_epi32(0x3f003f00);  // 0.5 in bf16, twice
  const __m512bh b = (__m512bh)bits;
  keep(sums);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) sums[s] = _mm512_dpbf16_ps(sums[s], (__m512bh)bits, b);
    keep(bits);
  }
  keep(sums);
}

void floats(int64_t iterations) {
  __m512 sums[kSums];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  __m512 a = _mm512_set1_ps(0.5f);
  const __m512 b = _mm512_set1_ps(0.25f);
  keep(sums);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) sums[s] = _mm512_fmadd_ps(sums[s], a, b);
    keep(a);
  }
  keep(sums);
}

constexpr Loop kLoops[] = {
    {Kind::kInt8, "avx512 vpdpbusd", has_vnni, kSums * 128.0, bytes},
    {Kind::kBf16, "avx512 vdpbf16ps", has_bf16, kSums * 64.0, brains},
    {Kind::kF32, "avx512 vfmadd", has_f32, kSums * 32.0, floats},
};

}  // namespace

std::span<const Loop> avx512_loops() { return kLoops; }

}  // namespace coxswain::limits
#else
namespace coxswain::limits {
std::span<const Loop> avx512_loops() { return {}; }
}  // namespace coxswain::limits
#endif

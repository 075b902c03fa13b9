// 64-bit ARM: sdot and smmla for bytes, bfmmla for bf16, fmla for f32. Compiled for a CPU that has
// all of them; which of them run is asked at run time.
#include "limits/arithmetic.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace coxswain::limits {
namespace {

constexpr int kSums = 16;

// Registers that the optimiser must take for read and changed: without it equal sums become one,
// and loops fold.
template <typename Vector>
inline void keep(Vector& value) {
  __asm__ volatile("" : "+w"(value));
}
template <typename Vector>
inline void keep(Vector (&values)[kSums]) {
#pragma GCC unroll 16
  for (Vector& value : values) __asm__ volatile("" : "+w"(value));
}

#if defined(__linux__)
// Bits of the kernel's interface, which older system headers lack.
bool has_dotprod() { return (getauxval(AT_HWCAP) & (1ul << 20)) != 0; }
bool has_i8mm() { return (getauxval(AT_HWCAP2) & (1ul << 13)) != 0; }
bool has_bf16() { return (getauxval(AT_HWCAP2) & (1ul << 14)) != 0; }
#elif defined(__APPLE__)
bool feature(const char* name) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}
bool has_dotprod() { return feature("hw.optional.arm.FEAT_DotProd"); }
bool has_i8mm() { return feature("hw.optional.arm.FEAT_I8MM"); }
bool has_bf16() { return feature("hw.optional.arm.FEAT_BF16"); }
#else
bool has_dotprod() { return false; }
bool has_i8mm() { return false; }
bool has_bf16() { return false; }
#endif
bool has_f32() { return true; }

void dots(int64_t iterations) {
  int32x4_t sums[kSums] = {};
  int8x16_t a = vdupq_n_s8(1);
  const int8x16_t b = vdupq_n_s8(2);
  keep(sums);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) sums[s] = vdotq_s32(sums[s], a, b);
    keep(a);
  }
  keep(sums);
}

void byte_tiles(int64_t iterations) {
  int32x4_t sums[kSums] = {};
  int8x16_t a = vdupq_n_s8(1);
  const int8x16_t b = vdupq_n_s8(2);
  keep(sums);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) sums[s] = vmmlaq_s32(sums[s], a, b);
    keep(a);
  }
  keep(sums);
}

void brain_tiles(int64_t iterations) {
  float32x4_t sums[kSums] = {};
  uint16x8_t bits = vdupq_n_u16(0x3f01);  // about 0.5 in bf16
  const bfloat16x8_t b = vreinterpretq_bf16_u16(bits);
  keep(sums);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) {
      sums[s] = vbfmmlaq_f32(sums[s], vreinterpretq_bf16_u16(bits), b);
    }
    keep(bits);
  }
  keep(sums);
}

void floats(int64_t iterations) {
  float32x4_t sums[kSums] = {};
  float32x4_t a = vdupq_n_f32(0.5f);
  const float32x4_t b = vdupq_n_f32(0.25f);
  keep(sums);
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 16
    for (int s = 0; s < kSums; ++s) sums[s] = vfmaq_f32(sums[s], a, b);
    keep(a);
  }
  keep(sums);
}

constexpr Loop kLoops[] = {
    {Kind::kInt8, "neon sdot", has_dotprod, kSums * 32.0, dots},
    {Kind::kInt8, "neon smmla", has_i8mm, kSums * 64.0, byte_tiles},
    {Kind::kBf16, "neon bfmmla", has_bf16, kSums * 32.0, brain_tiles},
    {Kind::kF32, "neon fmla", has_f32, kSums * 8.0, floats},
};

}  // namespace

std::span<const Loop> neon_loops() { return kLoops; }

}  // namespace coxswain::limits
#else
namespace coxswain::limits {
std::span<const Loop> neon_loops() { return {}; }
}  // namespace coxswain::limits
#endif

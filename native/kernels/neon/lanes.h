// 16 float lanes in four 128-bit registers: the operations that the templates of ../vector need.
// Base ARMv8: fused multiply-add and half-precision conversion are part of it.
#pragma once
#include <arm_neon.h>

#include <cstdint>

#include "base/tensor_type.h"
#include "kernels/exp_constants.h"
#include "kernels/vector/unroll.h"

namespace coxswain::kernels::neon {

struct Lanes {
  struct F {
    float32x4_t v[4];  // lanes 0..3, 4..7, 8..11, 12..15
  };
  // Tile sizes that keep accumulators and operands in the 32 registers.
  static constexpr int kTileWeights = 2;
  static constexpr int kTileRows = 2;
  static constexpr int kKeyQueries = 2;
  static constexpr int kValueQueries = 2;
  static constexpr int kValueVectors = 2;

  template <class Op>
  static COX_INLINE F each(Op op) {
    return {{op(0), op(1), op(2), op(3)}};
  }

  static COX_INLINE F zero() { return set1(0.0f); }
  static COX_INLINE F set1(float value) {
    const float32x4_t v = vdupq_n_f32(value);
    return {{v, v, v, v}};
  }
  static COX_INLINE F load(const float* p) {
    return each([&](int i) COX_INLINE_LAMBDA { return vld1q_f32(p + 4 * i); });
  }
  static COX_INLINE F load_partial(const float* p, int64_t n) {
    float lanes[16] = {};
    __builtin_memcpy(lanes, p, static_cast<size_t>(n) * sizeof(float));
    return load(lanes);
  }
  static COX_INLINE void store(float* p, F a) {
    vector::unroll<4>([&](auto i) COX_INLINE_LAMBDA { vst1q_f32(p + 4 * i, a.v[i]); });
  }
  static COX_INLINE void store_partial(float* p, F a, int64_t n) {
    float lanes[16];
    store(lanes, a);
    __builtin_memcpy(p, lanes, static_cast<size_t>(n) * sizeof(float));
  }
  // Lanes below n from a, the others from b.
  static COX_INLINE F select_first(F a, F b, int64_t n) {
    static constexpr uint32_t kIndex[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const uint32x4_t limit = vdupq_n_u32(static_cast<uint32_t>(n));
    return each([&](int i) COX_INLINE_LAMBDA {
      return vbslq_f32(vcltq_u32(vld1q_u32(kIndex + 4 * i), limit), a.v[i], b.v[i]);
    });
  }

  static COX_INLINE F add(F a, F b) {
    return each([&](int i) COX_INLINE_LAMBDA { return vaddq_f32(a.v[i], b.v[i]); });
  }
  static COX_INLINE F sub(F a, F b) {
    return each([&](int i) COX_INLINE_LAMBDA { return vsubq_f32(a.v[i], b.v[i]); });
  }
  static COX_INLINE F mul(F a, F b) {
    return each([&](int i) COX_INLINE_LAMBDA { return vmulq_f32(a.v[i], b.v[i]); });
  }
  static COX_INLINE F div(F a, F b) {
    return each([&](int i) COX_INLINE_LAMBDA { return vdivq_f32(a.v[i], b.v[i]); });
  }
  static COX_INLINE F fma(F a, F b, F c) {
    return each([&](int i) COX_INLINE_LAMBDA { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
  }
  // Selection by comparison: the ARM maximum treats NaN and signed zeros differently.
  static COX_INLINE float32x4_t greater(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
  }
  static COX_INLINE F max(F a, F b) {  // a > b ? a : b
    return each([&](int i) COX_INLINE_LAMBDA { return greater(a.v[i], b.v[i]); });
  }
  static COX_INLINE F min(F a, F b) {  // a < b ? a : b
    return each([&](int i) COX_INLINE_LAMBDA {
      return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]);
    });
  }
  static COX_INLINE F neg(F a) {
    return each([&](int i) COX_INLINE_LAMBDA { return vnegq_f32(a.v[i]); });
  }
  static COX_INLINE F abs(F a) {
    return each([&](int i) COX_INLINE_LAMBDA { return vabsq_f32(a.v[i]); });
  }
  static COX_INLINE float fma1(float a, float b, float c) {
    return vgetq_lane_f32(vfmaq_f32(vdupq_n_f32(c), vdupq_n_f32(a), vdupq_n_f32(b)), 0);
  }
  static COX_INLINE float sqrt1(float a) { return vgetq_lane_f32(vsqrtq_f32(vdupq_n_f32(a)), 0); }

  // --- reductions
  // ---------------------------------------------------------------------------------
  static COX_INLINE float32x4_t halve(F a) {  // lanes i + 8, then i + 4
    return vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  }
  // Of the four lanes of a and of b: [a0 + a2, a1 + a3, b0 + b2, b1 + b3].
  static COX_INLINE float32x4_t add_two(float32x4_t a, float32x4_t b) {
    return vaddq_f32(vcombine_f32(vget_low_f32(a), vget_low_f32(b)),
                     vcombine_f32(vget_high_f32(a), vget_high_f32(b)));
  }
  static COX_INLINE float32x4_t trees(F a, F b, F c, F d) {
    const float32x4_t ab = add_two(halve(a), halve(b));
    const float32x4_t cd = add_two(halve(c), halve(d));
    return vaddq_f32(vuzp1q_f32(ab, cd), vuzp2q_f32(ab, cd));
  }
  static COX_INLINE float tree(F a) {
    const float32x4_t four = halve(a);
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }
  static COX_INLINE float max_tree(F a) {
    const float32x4_t four = greater(greater(a.v[0], a.v[2]), greater(a.v[1], a.v[3]));
    float lanes[4];
    vst1q_f32(lanes, four);
    const float first = lanes[0] > lanes[2] ? lanes[0] : lanes[2];
    const float second = lanes[1] > lanes[3] ? lanes[1] : lanes[3];
    return first > second ? first : second;
  }
  static COX_INLINE void tree4(F a, F b, F c, F d, float* out) {
    vst1q_f32(out, trees(a, b, c, d));
  }
  static COX_INLINE F tree16(const F (&v)[16]) {
    return each([&](int i) COX_INLINE_LAMBDA {
      return trees(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
    });
  }

  // --- conversions
  // --------------------------------------------------------------------------------
  static COX_INLINE uint16x8_t raw16(const uint8_t* p) { return vreinterpretq_u16_u8(vld1q_u8(p)); }
  static COX_INLINE float32x4_t from_half(uint16x4_t raw) {
    return vcvt_f32_f16(vreinterpret_f16_u16(raw));
  }
  static COX_INLINE float32x4_t from_bf16(uint16x4_t raw) {
    return vreinterpretq_f32_u32(vshll_n_u16(raw, 16));
  }
  template <TensorType T>
  static COX_INLINE F load_weight(const uint8_t* p) {
    if constexpr (T == TensorType::kF32) {
      return each([&](int i)
                      COX_INLINE_LAMBDA { return vreinterpretq_f32_u8(vld1q_u8(p + 16 * i)); });
    } else {
      const uint16x8_t lo = raw16(p);
      const uint16x8_t hi = raw16(p + 16);
      if constexpr (T == TensorType::kF16) {
        return {{from_half(vget_low_u16(lo)), from_half(vget_high_u16(lo)),
                 from_half(vget_low_u16(hi)), from_half(vget_high_u16(hi))}};
      } else {
        return {{from_bf16(vget_low_u16(lo)), from_bf16(vget_high_u16(lo)),
                 from_bf16(vget_low_u16(hi)), from_bf16(vget_high_u16(hi))}};
      }
    }
  }
  static COX_INLINE void store_f16(uint8_t* p, F a) {
    vector::unroll<4>([&](auto i) COX_INLINE_LAMBDA {
      vst1_u8(p + 8 * i, vreinterpret_u8_f16(vcvt_f16_f32(a.v[i])));
    });
  }
  static COX_INLINE bool all_finite(F a, F b) {
    const float32x4_t limit = vdupq_n_f32(__FLT_MAX__);
    uint32x4_t fine = vdupq_n_u32(~0u);
    vector::unroll<4>([&](auto i) COX_INLINE_LAMBDA {
      fine = vandq_u32(fine, vcleq_f32(vabsq_f32(a.v[i]), limit));
      fine = vandq_u32(fine, vcleq_f32(vabsq_f32(b.v[i]), limit));
    });
    return vminvq_u32(fine) == ~0u;
  }
  // Rounds half to even, stores 16 bytes, returns their sum.
  static COX_INLINE int32_t round_to_int8(F a, int8_t* out) {
    int32x4_t n[4];
    vector::unroll<4>([&](auto i) COX_INLINE_LAMBDA { n[i] = vcvtnq_s32_f32(a.v[i]); });
    const int16x8_t lo = vcombine_s16(vmovn_s32(n[0]), vmovn_s32(n[1]));
    const int16x8_t hi = vcombine_s16(vmovn_s32(n[2]), vmovn_s32(n[3]));
    vst1q_s8(out, vcombine_s8(vmovn_s16(lo), vmovn_s16(hi)));
    return vaddvq_s32(vaddq_s32(vaddq_s32(n[0], n[1]), vaddq_s32(n[2], n[3])));
  }
  // p * 2^n, n in the low bits of `shifted` (exp_constants.h), as two factors.
  static COX_INLINE F scale_by_power(F p, F shifted) {
    const int32x4_t bias = vdupq_n_s32(127);
    return each([&](int i) COX_INLINE_LAMBDA {
      const int32x4_t n = vsubq_s32(vreinterpretq_s32_f32(shifted.v[i]),
                                    vdupq_n_s32(static_cast<int32_t>(kRoundShiftBits)));
      const int32x4_t half = vshrq_n_s32(n, 1);
      const int32x4_t rest = vsubq_s32(n, half);
      const float32x4_t one = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
      const float32x4_t two = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
      return vmulq_f32(vmulq_f32(p.v[i], one), two);
    });
  }

  // --- pairs (interleaved RoPE)
  // ---------------------------------------------------------------------
  static COX_INLINE F load_pairs(const float* p, int64_t n) {  // p0 p0 p1 p1 ... of n <= 8 values
    float values[8] = {};
    __builtin_memcpy(values, p, static_cast<size_t>(n) * sizeof(float));
    const float32x4_t a = vld1q_f32(values);
    const float32x4_t b = vld1q_f32(values + 4);
    return {{vzip1q_f32(a, a), vzip2q_f32(a, a), vzip1q_f32(b, b), vzip2q_f32(b, b)}};
  }
  static COX_INLINE F swap_pairs(F a) {
    return each([&](int i) COX_INLINE_LAMBDA { return vrev64q_f32(a.v[i]); });
  }
  static COX_INLINE F negate_even(F a) {
    return each([&](int i) COX_INLINE_LAMBDA {
      return vtrn1q_f32(vnegq_f32(a.v[i]), vrev64q_f32(a.v[i]));
    });
  }
};

}  // namespace coxswain::kernels::neon

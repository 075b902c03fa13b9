// The operations of ../vector/a8_matmul.h on 128-bit registers: 4 rows of a group at a time.
//
// Codes below 128 serve as signed bytes directly; where the offset is 128 they are made signed, and
// nothing is taken back. `Dot` chooses the dot-product instruction (its own file and flags) or
// widening multiplications.
#pragma once
#include "kernels/layout.h"
#include "kernels/neon/lanes.h"
#include "kernels/vector/code_table.h"

namespace coxswain::kernels::neon {

template <class Dot>
struct A8 {
  using F = float32x4_t;
  using I = int32x4_t;
  using W = int8x16_t;
  static constexpr int kRows = 4;
  static constexpr int kMaxTile = 8;
  static constexpr bool kSignedCodes = true;

  static COX_INLINE F zero() { return vdupq_n_f32(0.0f); }
  static COX_INLINE F set1(float v) { return vdupq_n_f32(v); }
  static COX_INLINE F add(F a, F b) { return vaddq_f32(a, b); }
  static COX_INLINE F mul(F a, F b) { return vmulq_f32(a, b); }
  static COX_INLINE F fma(F a, F b, F c) { return vfmaq_f32(c, a, b); }
  static COX_INLINE F neg(F a) { return vnegq_f32(a); }
  static COX_INLINE F load(const float* p) { return vld1q_f32(p); }
  static COX_INLINE void store(float* p, F v) { vst1q_f32(p, v); }

  static COX_INLINE void widen(double* p, F v) {
    vst1q_f64(p, vcvt_f64_f32(vget_low_f32(v)));
    vst1q_f64(p + 2, vcvt_high_f64_f32(v));
  }
  static COX_INLINE void widen_add(double* p, F v) {
    vst1q_f64(p, vaddq_f64(vld1q_f64(p), vcvt_f64_f32(vget_low_f32(v))));
    vst1q_f64(p + 2, vaddq_f64(vld1q_f64(p + 2), vcvt_high_f64_f32(v)));
  }
  static COX_INLINE F narrow(const double* p) {
    return vcvt_high_f32_f64(vcvt_f32_f64(vld1q_f64(p)), vld1q_f64(p + 2));
  }

  static COX_INLINE F broadcast(const uint8_t* p) {
    float v;
    __builtin_memcpy(&v, p, sizeof v);
    return vdupq_n_f32(v);
  }
  static COX_INLINE uint32_t word(const uint8_t* p) {
    uint32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static COX_INLINE I broadcast_int(const uint8_t* p) {
    return vreinterpretq_s32_u32(vdupq_n_u32(word(p)));
  }
  static COX_INLINE I zero_int() { return vdupq_n_s32(0); }
  template <int Bits>
  static COX_INLINE I shift_left(I v) {
    return vshlq_n_s32(v, Bits);
  }
  static COX_INLINE F to_float(I v) { return vcvtq_f32_s32(v); }

  static COX_INLINE F halves(const uint8_t* p) {
    return Lanes::from_half(vreinterpret_u16_u8(vld1_u8(p)));
  }
  static COX_INLINE uint8x8_t bytes4(const uint8_t* p) {
    return vreinterpret_u8_u32(vdup_n_u32(word(p)));
  }
  static COX_INLINE uint32x4_t widened(const uint8_t* p) {
    return vmovl_u16(vget_low_u16(vmovl_u8(bytes4(p))));
  }
  static COX_INLINE F signed_bytes(const uint8_t* p) {
    return to_float(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u8(bytes4(p))))));
  }
  static COX_INLINE F unsigned_bytes(const uint8_t* p) { return vcvtq_f32_u32(widened(p)); }
  // The low and high halves of 4 bytes.
  static COX_INLINE void nibbles(const uint8_t* p, F& low, F& high) {
    const uint32x4_t both = widened(p);
    low = vcvtq_f32_u32(vandq_u32(both, vdupq_n_u32(15)));
    high = vcvtq_f32_u32(vshrq_n_u32(both, 4));
  }
  static COX_INLINE F e8m0(const uint8_t* p) {  // as e8m0_half() of ../scale.h
    const uint32x4_t e = widened(p);
    const uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    const uint32x4_t tiny = vshlq_u32(vdupq_n_u32(0x00200000u), vreinterpretq_s32_u32(e));
    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), tiny, normal));
  }

  static COX_INLINE W load_codes(const uint8_t* p) { return vreinterpretq_s8_u8(vld1q_u8(p)); }
  // Bits [Shift, Shift + Bits) of each byte, moved to bit To.
  template <int Shift, int Bits, int To>
  static COX_INLINE W field(W v) {
    if constexpr (Bits == 8) return v;
    uint8x16_t u = vreinterpretq_u8_s8(v);
    if constexpr (Shift > To) u = vshrq_n_u8(u, Shift - To);
    if constexpr (Shift < To) u = vshlq_n_u8(u, To - Shift);
    if constexpr (Shift - To + Bits != 8 || To != 0) {
      u = vandq_u8(u, vdupq_n_u8(((1 << Bits) - 1) << To));
    }
    return vreinterpretq_s8_u8(u);
  }
  static COX_INLINE W join(W a, W b) { return vorrq_s8(a, b); }
  // The signed numbers that codes stand for in the dot product.
  template <TensorType T>
  static COX_INLINE W code_bytes(W code) {
    constexpr PackLayout kLayout = layout_of(T);
    constexpr bool kSigned = kLayout.offset == 128;
    const uint8x16_t u = vreinterpretq_u8_s8(code);
    if constexpr (kLayout.codebook != Codebook::kNone) {
      return vreinterpretq_s8_u8(vqtbl1q_u8(vld1q_u8(vector::kCodeTable<T, kSigned>.bytes), u));
    }
    return kSigned ? vreinterpretq_s8_u8(veorq_u8(u, vdupq_n_u8(0x80))) : code;
  }

  // sum + codes * the 16 activation bytes at q.
  template <TensorType T>
  static COX_INLINE I dot(I sum, const W (&w)[4], const uint8_t* q) {
    return Dot::dot(sum, w, vreinterpretq_s8_u8(vld1q_u8(q)));
  }
};

}  // namespace coxswain::kernels::neon

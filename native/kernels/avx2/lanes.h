// 16 float lanes in two 256-bit registers: the operations that the templates of ../vector need.
// Included only by files compiled with the AVX2, FMA and F16C flags.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "base/tensor_type.h"
#include "kernels/exp_constants.h"
#include "kernels/vector/unroll.h"

namespace coxswain::kernels::avx2 {

struct Lanes {
  struct F {
    __m256 lo;  // lanes 0..7
    __m256 hi;
  };
  // Tile sizes that keep accumulators and operands in the 16 registers.
  static constexpr int kTileWeights = 2;
  static constexpr int kTileRows = 2;
  static constexpr int kKeyQueries = 2;
  static constexpr int kValueQueries = 2;
  static constexpr int kValueVectors = 2;

  // All bits set in the lanes below n; n <= 0 none, n >= 8 all.
  static COX_INLINE __m256i first(int64_t n) {
    const int count = n < 0 ? 0 : n > 8 ? 8 : static_cast<int>(n);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  static COX_INLINE F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static COX_INLINE F set1(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
  static COX_INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static COX_INLINE F load_partial(const float* p, int64_t n) {
    return {_mm256_maskload_ps(p, first(n)), _mm256_maskload_ps(p + 8, first(n - 8))};
  }
  static COX_INLINE void store(float* p, F v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
  }
  static COX_INLINE void store_partial(float* p, F v, int64_t n) {
    _mm256_maskstore_ps(p, first(n), v.lo);
    _mm256_maskstore_ps(p + 8, first(n - 8), v.hi);
  }
  // Lanes below n from a, the others from b.
  static COX_INLINE F select_first(F a, F b, int64_t n) {
    return {_mm256_blendv_ps(b.lo, a.lo, _mm256_castsi256_ps(first(n))),
            _mm256_blendv_ps(b.hi, a.hi, _mm256_castsi256_ps(first(n - 8)))};
  }

  static COX_INLINE F add(F a, F b) {
    return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
  }
  static COX_INLINE F sub(F a, F b) {
    return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
  }
  static COX_INLINE F mul(F a, F b) {
    return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
  }
  static COX_INLINE F div(F a, F b) {
    return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
  }
  static COX_INLINE F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  static COX_INLINE F max(F a, F b) {  // a > b ? a : b
    return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
  }
  static COX_INLINE F min(F a, F b) {  // a < b ? a : b
    return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
  }
  static COX_INLINE F neg(F a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
  }
  static COX_INLINE F abs(F a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
  }
  static COX_INLINE float fma1(float a, float b, float c) {
    return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
  }
  static COX_INLINE float sqrt1(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }

  // --- reductions
  // ---------------------------------------------------------------------------------
  static COX_INLINE __m128 halve(F v) {  // lanes i + 8, then i + 4
    const __m256 eight = _mm256_add_ps(v.lo, v.hi);
    return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  }
  static COX_INLINE float tree(F v) {
    const __m128 four = halve(v);
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static COX_INLINE float max_tree(F v) {
    const __m256 eight = _mm256_max_ps(v.lo, v.hi);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }
  static COX_INLINE __m128 trees(F a, F b, F c, F d) {
    const __m128 a4 = halve(a);
    const __m128 b4 = halve(b);
    const __m128 c4 = halve(c);
    const __m128 d4 = halve(d);
    const __m128 ab = _mm_add_ps(_mm_movelh_ps(a4, b4), _mm_movehl_ps(b4, a4));
    const __m128 cd = _mm_add_ps(_mm_movelh_ps(c4, d4), _mm_movehl_ps(d4, c4));
    return _mm_add_ps(_mm_shuffle_ps(ab, cd, 0x88), _mm_shuffle_ps(ab, cd, 0xdd));
  }
  static COX_INLINE void tree4(F a, F b, F c, F d, float* out) {
    _mm_storeu_ps(out, trees(a, b, c, d));
  }
  static COX_INLINE F tree16(const F (&v)[16]) {
    return {_mm256_set_m128(trees(v[4], v[5], v[6], v[7]), trees(v[0], v[1], v[2], v[3])),
            _mm256_set_m128(trees(v[12], v[13], v[14], v[15]), trees(v[8], v[9], v[10], v[11]))};
  }

  // --- conversions
  // --------------------------------------------------------------------------------
  static COX_INLINE __m128i raw16(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static COX_INLINE __m256 from_bf16(__m128i raw) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
  }
  template <TensorType T>
  static COX_INLINE F load_weight(const uint8_t* p) {
    if constexpr (T == TensorType::kF32) {
      return load(reinterpret_cast<const float*>(p));
    } else if constexpr (T == TensorType::kF16) {
      return {_mm256_cvtph_ps(raw16(p)), _mm256_cvtph_ps(raw16(p + 16))};
    } else {
      return {from_bf16(raw16(p)), from_bf16(raw16(p + 16))};
    }
  }
  static COX_INLINE void store_f16(uint8_t* p, F v) {
    constexpr int kRound = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v.lo, kRound));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16), _mm256_cvtps_ph(v.hi, kRound));
  }
  static COX_INLINE __m256 finite(F v) {
    const __m256 limit = _mm256_set1_ps(__FLT_MAX__);
    const F magnitude = abs(v);
    return _mm256_and_ps(_mm256_cmp_ps(magnitude.lo, limit, _CMP_LE_OQ),
                         _mm256_cmp_ps(magnitude.hi, limit, _CMP_LE_OQ));
  }
  static COX_INLINE bool all_finite(F a, F b) {
    return _mm256_movemask_ps(_mm256_and_ps(finite(a), finite(b))) == 0xff;
  }
  // Rounds half to even, stores 16 bytes, returns their sum.
  static COX_INLINE int32_t round_to_int8(F v, int8_t* out) {
    const __m256i lo = _mm256_cvtps_epi32(v.lo);
    const __m256i hi = _mm256_cvtps_epi32(v.hi);
    // The 256-bit pack works on halves; the permutation puts the quarters back in order.
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(lo, hi), 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), bytes);
    const __m256i eight = _mm256_add_epi32(lo, hi);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
  }
  // p * 2^n, n in the low bits of `shifted` (exp_constants.h), as two factors.
  static COX_INLINE __m256 scale_by_power(__m256 p, __m256 shifted) {
    const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(shifted),
                                       _mm256_set1_epi32(static_cast<int>(kRoundShiftBits)));
    const __m256i half = _mm256_srai_epi32(n, 1);
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256i rest = _mm256_sub_epi32(n, half);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(p,
                         _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
  }
  static COX_INLINE F scale_by_power(F p, F shifted) {
    return {scale_by_power(p.lo, shifted.lo), scale_by_power(p.hi, shifted.hi)};
  }

  // --- pairs (interleaved RoPE)
  // ---------------------------------------------------------------------
  static COX_INLINE F load_pairs(const float* p, int64_t n) {  // p0 p0 p1 p1 ... of n <= 8 values
    const __m256 v = _mm256_maskload_ps(p, first(n));
    return {_mm256_permutevar8x32_ps(v, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
            _mm256_permutevar8x32_ps(v, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
  }
  static COX_INLINE F swap_pairs(F v) {
    return {_mm256_permute_ps(v.lo, 0xb1), _mm256_permute_ps(v.hi, 0xb1)};
  }
  static COX_INLINE F negate_even(F v) {
    const __m256 signs = _mm256_setr_ps(-0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f, -0.0f, 0.0f);
    return {_mm256_xor_ps(v.lo, signs), _mm256_xor_ps(v.hi, signs)};
  }
};

}  // namespace coxswain::kernels::avx2

// 16 float lanes in one 512-bit register: the operations that the templates of ../vector need.
// Included only by files compiled with the AVX-512 flags.
#pragma once
#include <immintrin.h>

#include <cstdint>

#include "base/tensor_type.h"
#include "kernels/exp_constants.h"
#include "kernels/vector/unroll.h"

namespace coxswain::kernels::avx512 {

struct Lanes {
  using F = __m512;
  // Tile sizes that keep accumulators and operands in the 32 registers.
  static constexpr int kTileWeights = 4;
  static constexpr int kTileRows = 4;
  static constexpr int kKeyQueries = 4;
  static constexpr int kValueQueries = 4;
  static constexpr int kValueVectors = 4;

  static COX_INLINE __mmask16 first(int64_t n) {
    return static_cast<__mmask16>((1u << static_cast<unsigned>(n)) - 1u);
  }

  static COX_INLINE F zero() { return _mm512_setzero_ps(); }
  static COX_INLINE F set1(float v) { return _mm512_set1_ps(v); }
  static COX_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
  static COX_INLINE F load_partial(const float* p, int64_t n) {
    return _mm512_maskz_loadu_ps(first(n), p);
  }
  static COX_INLINE void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static COX_INLINE void store_partial(float* p, F v, int64_t n) {
    _mm512_mask_storeu_ps(p, first(n), v);
  }
  // Lanes below n from a, the others from b.
  static COX_INLINE F select_first(F a, F b, int64_t n) {
    return _mm512_mask_mov_ps(b, first(n), a);
  }

  static COX_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  static COX_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static COX_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static COX_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
  static COX_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static COX_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }  // a > b ? a : b
  static COX_INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }  // a < b ? a : b
  static COX_INLINE F neg(F a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
  static COX_INLINE F abs(F a) { return _mm512_andnot_ps(_mm512_set1_ps(-0.0f), a); }
  static COX_INLINE float fma1(float a, float b, float c) {
    return _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(a), _mm_set_ss(b), _mm_set_ss(c)));
  }
  static COX_INLINE float sqrt1(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }

  // --- reductions
  // ---------------------------------------------------------------------------------
  static COX_INLINE __m128 halve(F v) {  // lanes i + 8, then i + 4
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  }
  static COX_INLINE float tree(F v) {
    const __m128 four = halve(v);
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  static COX_INLINE float max_tree(F v) { return _mm512_reduce_max_ps(v); }
  static COX_INLINE F add_eight(F a, F b) {  // [a.lo8 + a.hi8, b.lo8 + b.hi8]
    return add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
  static COX_INLINE F add_four(F a, F b) {
    return add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
  }
  static COX_INLINE F add_two(F a, F b) {
    return add(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  }
  static COX_INLINE F add_one(F a, F b) {
    return add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
  }
  // The tree sums of a, b, c, d in the four lanes of each quarter, after add_eight and add_four.
  static COX_INLINE F quarters(F a, F b, F c, F d) {
    return add_four(add_eight(a, b), add_eight(c, d));
  }
  static COX_INLINE void tree4(F a, F b, F c, F d, float* out) {
    const F q = quarters(a, b, c, d);
    const F one = add_one(add_two(q, q), add_two(q, q));
    const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(pick, one)));
  }
  // Lane i = tree sum of v[i]. Quarter q of the last sum holds v[q], v[q+4], ... of the argument
  // order, so the vectors go in transposed.
  static COX_INLINE F tree16(const F (&v)[16]) {
    const F a = quarters(v[0], v[4], v[8], v[12]);
    const F b = quarters(v[1], v[5], v[9], v[13]);
    const F c = quarters(v[2], v[6], v[10], v[14]);
    const F d = quarters(v[3], v[7], v[11], v[15]);
    return add_one(add_two(a, b), add_two(c, d));
  }

  // --- conversions
  // --------------------------------------------------------------------------------
  template <TensorType T>
  static COX_INLINE F load_weight(const uint8_t* p) {
    if constexpr (T == TensorType::kF32) {
      return _mm512_loadu_ps(p);
    } else {
      const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
      if constexpr (T == TensorType::kF16) return _mm512_cvtph_ps(raw);
      return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16));
    }
  }
  static COX_INLINE void store_f16(uint8_t* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static COX_INLINE bool all_finite(F a, F b) {
    const F limit = _mm512_set1_ps(__FLT_MAX__);
    const __mmask16 fine = _mm512_cmp_ps_mask(abs(a), limit, _CMP_LE_OQ);
    return _mm512_mask_cmp_ps_mask(fine, abs(b), limit, _CMP_LE_OQ) == 0xffff;
  }
  // Rounds half to even, stores 16 bytes, returns their sum.
  static COX_INLINE int32_t round_to_int8(F v, int8_t* out) {
    const __m512i rounded = _mm512_cvtps_epi32(v);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(rounded));
    return _mm512_reduce_add_epi32(rounded);
  }
  // p * 2^n, n in the low bits of `shifted` (exp_constants.h), as two factors.
  static COX_INLINE F scale_by_power(F p, F shifted) {
    const __m512i n = _mm512_sub_epi32(_mm512_castps_si512(shifted),
                                       _mm512_set1_epi32(static_cast<int>(kRoundShiftBits)));
    const __m512i half = _mm512_srai_epi32(n, 1);
    const __m512i bias = _mm512_set1_epi32(127);
    const __m512i rest = _mm512_sub_epi32(n, half);
    p = mul(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(half, bias), 23)));
    return mul(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(rest, bias), 23)));
  }

  // --- pairs (interleaved RoPE)
  // ---------------------------------------------------------------------
  static COX_INLINE F load_pairs(const float* p, int64_t n) {  // p0 p0 p1 p1 ... of n <= 8 values
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(twice, load_partial(p, n));
  }
  static COX_INLINE F swap_pairs(F v) { return _mm512_permute_ps(v, 0xb1); }
  static COX_INLINE F negate_even(F v) {
    return _mm512_mask_xor_ps(v, 0x5555, v, _mm512_set1_ps(-0.0f));
  }
};

}  // namespace coxswain::kernels::avx512

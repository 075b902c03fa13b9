// The operations of ../vector/a8_matmul.h on 512-bit registers with the byte dot product (VNNI):
// all 16 rows of a group at once.
#pragma once
#include "kernels/avx512/lanes.h"
#include "kernels/layout.h"
#include "kernels/vector/code_table.h"

namespace coxswain::kernels::avx512 {

struct A8 {
  using F = __m512;
  using I = __m512i;
  using W = __m512i;
  static constexpr int kRows = 16;
  static constexpr int kMaxTile = 8;
  static constexpr bool kSignedCodes = false;

  static COX_INLINE F zero() { return _mm512_setzero_ps(); }
  static COX_INLINE F set1(float v) { return _mm512_set1_ps(v); }
  static COX_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  static COX_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static COX_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static COX_INLINE F neg(F a) { return Lanes::neg(a); }
  static COX_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
  static COX_INLINE void store(float* p, F v) { _mm512_storeu_ps(p, v); }

  static COX_INLINE __m512d low(F v) { return _mm512_cvtps_pd(_mm512_castps512_ps256(v)); }
  static COX_INLINE __m512d high(F v) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)); }
  static COX_INLINE void widen(double* p, F v) {
    _mm512_store_pd(p, low(v));
    _mm512_store_pd(p + 8, high(v));
  }
  static COX_INLINE void widen_add(double* p, F v) {
    _mm512_store_pd(p, _mm512_add_pd(_mm512_load_pd(p), low(v)));
    _mm512_store_pd(p + 8, _mm512_add_pd(_mm512_load_pd(p + 8), high(v)));
  }
  static COX_INLINE F narrow(const double* p) {
    const __m256 first = _mm512_cvtpd_ps(_mm512_load_pd(p));
    return _mm512_insertf32x8(_mm512_castps256_ps512(first), _mm512_cvtpd_ps(_mm512_load_pd(p + 8)),
                              1);
  }

  static COX_INLINE float read_float(const uint8_t* p) {
    float v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static COX_INLINE int32_t read_int(const uint8_t* p) {
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static COX_INLINE F broadcast(const uint8_t* p) { return _mm512_set1_ps(read_float(p)); }
  static COX_INLINE I broadcast_int(const uint8_t* p) { return _mm512_set1_epi32(read_int(p)); }
  static COX_INLINE I zero_int() { return _mm512_setzero_si512(); }
  template <int Bits>
  static COX_INLINE I shift_left(I v) {
    return _mm512_slli_epi32(v, Bits);
  }
  static COX_INLINE F to_float(I v) { return _mm512_cvtepi32_ps(v); }

  static COX_INLINE F halves(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static COX_INLINE __m128i bytes16(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static COX_INLINE F signed_bytes(const uint8_t* p) {
    return to_float(_mm512_cvtepi8_epi32(bytes16(p)));
  }
  static COX_INLINE F unsigned_bytes(const uint8_t* p) {
    return to_float(_mm512_cvtepu8_epi32(bytes16(p)));
  }
  // The low and high halves of 16 bytes.
  static COX_INLINE void nibbles(const uint8_t* p, F& low, F& high) {
    const __m512i both = _mm512_cvtepu8_epi32(bytes16(p));
    low = to_float(_mm512_and_si512(both, _mm512_set1_epi32(15)));
    high = to_float(_mm512_srli_epi32(both, 4));
  }
  static COX_INLINE F e8m0(const uint8_t* p) {  // as e8m0_half() of ../scale.h
    const __m512i e = _mm512_cvtepu8_epi32(bytes16(p));
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __mmask16 tiny = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
    return _mm512_castsi512_ps(
        _mm512_mask_sllv_epi32(normal, tiny, _mm512_set1_epi32(0x00200000), e));
  }

  template <TensorType T>
  static COX_INLINE W table() {
    return _mm512_broadcast_i32x4(bytes16(vector::kCodeTable<T, false>.bytes));
  }

  static COX_INLINE W load_codes(const uint8_t* p) { return _mm512_loadu_si512(p); }
  // Bits [Shift, Shift + Bits) of each byte, moved to bit To.
  template <int Shift, int Bits, int To>
  static COX_INLINE W field(W v) {
    if constexpr (Bits == 8) {
      return v;
    } else {
      if constexpr (Shift > To) v = _mm512_srli_epi16(v, Shift - To);
      if constexpr (Shift < To) v = _mm512_slli_epi16(v, To - Shift);
      return _mm512_and_si512(v, _mm512_set1_epi8(((1 << Bits) - 1) << To));
    }
  }
  static COX_INLINE W join(W a, W b) { return _mm512_or_si512(a, b); }
  // The unsigned numbers that codes stand for in the dot product.
  template <TensorType T>
  static COX_INLINE W code_bytes(W code) {
    if constexpr (layout_of(T).codebook == Codebook::kNone) return code;
    return _mm512_shuffle_epi8(table<T>(), code);
  }

  // sum + codes * the 16 activation bytes at q.
  template <TensorType T>
  static COX_INLINE I dot(I sum, const W (&w)[4], const uint8_t* q) {
    vector::unroll<4>([&](auto v) COX_INLINE_LAMBDA {
      sum = _mm512_dpbusd_epi32(sum, w[v], broadcast_int(q + 4 * v));
    });
    return sum;
  }
};

}  // namespace coxswain::kernels::avx512

// The operations of ../vector/a8_matmul.h on 256-bit registers: 8 rows of a group at a time.
//
// The byte product of AVX2 adds pairs in 16 bits with saturation. Unsigned codes are small enough
// for it (and for adding several products before widening) except where the offset is 128: there
// the codes are made signed, and their signs move to the activations.
#pragma once
#include "kernels/avx2/lanes.h"
#include "kernels/layout.h"
#include "kernels/vector/code_table.h"

namespace coxswain::kernels::avx2 {

struct A8 {
  using F = __m256;
  using I = __m256i;
  using W = __m256i;
  static constexpr int kRows = 8;
  static constexpr int kMaxTile = 4;
  static constexpr bool kSignedCodes = true;

  static COX_INLINE F zero() { return _mm256_setzero_ps(); }
  static COX_INLINE F set1(float v) { return _mm256_set1_ps(v); }
  static COX_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
  static COX_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static COX_INLINE F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static COX_INLINE F neg(F a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
  static COX_INLINE F load(const float* p) { return _mm256_loadu_ps(p); }
  static COX_INLINE void store(float* p, F v) { _mm256_storeu_ps(p, v); }

  static COX_INLINE __m256d low(F v) { return _mm256_cvtps_pd(_mm256_castps256_ps128(v)); }
  static COX_INLINE __m256d high(F v) { return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)); }
  static COX_INLINE void widen(double* p, F v) {
    _mm256_store_pd(p, low(v));
    _mm256_store_pd(p + 4, high(v));
  }
  static COX_INLINE void widen_add(double* p, F v) {
    _mm256_store_pd(p, _mm256_add_pd(_mm256_load_pd(p), low(v)));
    _mm256_store_pd(p + 4, _mm256_add_pd(_mm256_load_pd(p + 4), high(v)));
  }
  static COX_INLINE F narrow(const double* p) {
    return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_load_pd(p + 4)),
                           _mm256_cvtpd_ps(_mm256_load_pd(p)));
  }

  static COX_INLINE F broadcast(const uint8_t* p) {
    float v;
    __builtin_memcpy(&v, p, sizeof v);
    return _mm256_set1_ps(v);
  }
  static COX_INLINE I broadcast_int(const uint8_t* p) {
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return _mm256_set1_epi32(v);
  }
  static COX_INLINE I zero_int() { return _mm256_setzero_si256(); }
  template <int Bits>
  static COX_INLINE I shift_left(I v) {
    return _mm256_slli_epi32(v, Bits);
  }
  static COX_INLINE F to_float(I v) { return _mm256_cvtepi32_ps(v); }

  static COX_INLINE F halves(const uint8_t* p) { return _mm256_cvtph_ps(Lanes::raw16(p)); }
  static COX_INLINE __m128i bytes8(const uint8_t* p) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  }
  static COX_INLINE F signed_bytes(const uint8_t* p) {
    return to_float(_mm256_cvtepi8_epi32(bytes8(p)));
  }
  static COX_INLINE F unsigned_bytes(const uint8_t* p) {
    return to_float(_mm256_cvtepu8_epi32(bytes8(p)));
  }
  // The low and high halves of 8 bytes.
  static COX_INLINE void nibbles(const uint8_t* p, F& low, F& high) {
    const __m256i both = _mm256_cvtepu8_epi32(bytes8(p));
    low = to_float(_mm256_and_si256(both, _mm256_set1_epi32(15)));
    high = to_float(_mm256_srli_epi32(both, 4));
  }
  static COX_INLINE F e8m0(const uint8_t* p) {  // as e8m0_half() of ../scale.h
    const __m256i e = _mm256_cvtepu8_epi32(bytes8(p));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const __m256i tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, tiny));
  }

  static COX_INLINE W load_codes(const uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  // Bits [Shift, Shift + Bits) of each byte, moved to bit To.
  template <int Shift, int Bits, int To>
  static COX_INLINE W field(W v) {
    if constexpr (Bits == 8) {
      return v;
    } else {
      if constexpr (Shift > To) v = _mm256_srli_epi16(v, Shift - To);
      if constexpr (Shift < To) v = _mm256_slli_epi16(v, To - Shift);
      return _mm256_and_si256(v, _mm256_set1_epi8(((1 << Bits) - 1) << To));
    }
  }
  static COX_INLINE W join(W a, W b) { return _mm256_or_si256(a, b); }
  // The numbers that codes stand for in the dot product: signed where the offset is 128.
  template <TensorType T>
  static COX_INLINE W code_bytes(W code) {
    constexpr PackLayout kLayout = layout_of(T);
    constexpr bool kSigned = kLayout.offset == 128;
    if constexpr (kLayout.codebook != Codebook::kNone) {
      const __m128i table = Lanes::raw16(vector::kCodeTable<T, kSigned>.bytes);
      return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), code);
    }
    return kSigned ? _mm256_xor_si256(code, _mm256_set1_epi8(-128)) : code;
  }

  // The largest code byte of a type, which bounds how many 16-bit products may be added.
  static constexpr int largest_code(TensorType type) {
    const PackLayout layout = layout_of(type);
    if (layout.codebook == Codebook::kNone) return (1 << layout.bits) - 1;
    int largest = 0;
    for (int i = 0; i < 16; ++i) {
      const int code = codebook_value(layout.codebook, i) + layout.offset;
      largest = code > largest ? code : largest;
    }
    return largest;
  }
  static constexpr int products_in_16_bits(TensorType type) {
    return 32767 / (2 * 127 * largest_code(type));
  }

  // sum + codes * the 16 activation bytes at q.
  template <TensorType T>
  static COX_INLINE I dot(I sum, const W (&w)[4], const uint8_t* q) {
    const __m256i ones = _mm256_set1_epi16(1);
    const auto product = [&](auto v) COX_INLINE_LAMBDA {
      const __m256i act = broadcast_int(q + 4 * v);
      if constexpr (layout_of(T).offset == 128) {
        return _mm256_maddubs_epi16(_mm256_abs_epi8(w[v]), _mm256_sign_epi8(act, w[v]));
      } else {
        return _mm256_maddubs_epi16(w[v], act);
      }
    };
    constexpr int kTogether = products_in_16_bits(T) >= 4 ? 4 : products_in_16_bits(T) >= 2 ? 2 : 1;
    vector::unroll<4 / kTogether>([&](auto i) COX_INLINE_LAMBDA {
      constexpr int kFirst = decltype(i)::value * kTogether;
      __m256i words = product(std::integral_constant<int, kFirst>{});
      vector::unroll<kTogether - 1>([&](auto j) COX_INLINE_LAMBDA {
        words = _mm256_add_epi16(
            words, product(std::integral_constant<int, kFirst + 1 + decltype(j)::value>{}));
      });
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(words, ones));
    });
    return sum;
  }
};

}  // namespace coxswain::kernels::avx2

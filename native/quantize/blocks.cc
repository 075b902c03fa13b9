// The types without a search, and the choice by type. The order of operations is that of the
// format's reference quantiser: the scale is rounded to f16 after the codes were computed with it
// as a float.
#include "quantize/blocks.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/half.h"

namespace coxswain::quantize {
namespace {

constexpr int kBlock = 32;

uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// 1 / d; where that is no number (d is zero or nearly so) every code becomes the one of zero.
float inverse_of(float d) {
  const float inverse = d != 0.0f ? 1.0f / d : 0.0f;
  return std::isfinite(inverse) ? inverse : 0.0f;
}

// The value farthest from zero, with its sign; the first of equals.
float farthest(const float* x) {
  float best = 0.0f;
  for (int j = 0; j < kBlock; ++j) {
    if (std::fabs(x[j]) > std::fabs(best)) best = x[j];
  }
  return best;
}

struct Range {
  float low, high;
};
Range range_of(const float* x) {
  Range range{x[0], x[0]};
  for (int j = 1; j < kBlock; ++j) {
    range.low = x[j] < range.low ? x[j] : range.low;
    range.high = x[j] > range.high ? x[j] : range.high;
  }
  return range;
}

uint8_t capped(float value, int most) {
  const int code = static_cast<int>(value);
  return static_cast<uint8_t>(code < most ? code : most);
}

// Columns 0..15 in the low nibbles, 16..31 in the high ones.
void put_nibbles(const uint8_t* code, uint8_t* out) {
  for (int j = 0; j < kBlock / 2; ++j) {
    out[j] = static_cast<uint8_t>((code[j] & 15) | ((code[j + kBlock / 2] & 15) << 4));
  }
}

void put_fifth_bits(const uint8_t* code, uint8_t* out) {
  uint32_t bits = 0;
  for (int j = 0; j < kBlock; ++j) bits |= static_cast<uint32_t>(code[j] >> 4) << j;
  put_u16(static_cast<uint16_t>(bits & 0xffffu), out);
  put_u16(static_cast<uint16_t>(bits >> 16), out + 2);
}

// Codes around a middle: the value farthest from zero becomes code 0.
float centred_codes(const float* x, int bits, uint8_t* code) {
  const int middle = 1 << (bits - 1);
  const float d = farthest(x) / static_cast<float>(-middle);
  const float inverse = inverse_of(d);
  for (int j = 0; j < kBlock; ++j) {
    code[j] = capped(x[j] * inverse + (static_cast<float>(middle) + 0.5f), 2 * middle - 1);
  }
  return d;
}

// Codes above a minimum.
Range ranged_codes(const float* x, int bits, uint8_t* code) {
  const int most = (1 << bits) - 1;
  const auto [low, high] = range_of(x);
  const float d = (high - low) / static_cast<float>(most);
  const float inverse = inverse_of(d);
  for (int j = 0; j < kBlock; ++j) code[j] = capped((x[j] - low) * inverse + 0.5f, most);
  return {low, d};
}

void quantize_q8_0(const float* x, uint8_t* out) {
  const float d = std::fabs(farthest(x)) / 127.0f;
  const float inverse = inverse_of(d);
  put_u16(f32_to_f16(d), out);
  for (int j = 0; j < kBlock; ++j) {
    // Half away from zero.
    const float scaled = x[j] * inverse;
    const float whole = static_cast<float>(static_cast<int>(scaled));
    const float rest = scaled - whole;
    const int step = static_cast<int>(rest >= 0.5f) - static_cast<int>(rest <= -0.5f);
    out[2 + j] = std::bit_cast<uint8_t>(static_cast<int8_t>(static_cast<int>(whole) + step));
  }
}

void quantize_q4_0(const float* x, uint8_t* out) {
  uint8_t code[kBlock];
  put_u16(f32_to_f16(centred_codes(x, 4, code)), out);
  put_nibbles(code, out + 2);
}

void quantize_q5_0(const float* x, uint8_t* out) {
  uint8_t code[kBlock];
  put_u16(f32_to_f16(centred_codes(x, 5, code)), out);
  put_fifth_bits(code, out + 2);
  put_nibbles(code, out + 6);
}

void quantize_q4_1(const float* x, uint8_t* out) {
  uint8_t code[kBlock];
  const auto [low, d] = ranged_codes(x, 4, code);
  put_u16(f32_to_f16(d), out);
  put_u16(f32_to_f16(low), out + 2);
  put_nibbles(code, out + 4);
}

void quantize_q5_1(const float* x, uint8_t* out) {
  uint8_t code[kBlock];
  const auto [low, d] = ranged_codes(x, 5, code);
  put_u16(f32_to_f16(d), out);
  put_u16(f32_to_f16(low), out + 2);
  put_fifth_bits(code, out + 4);
  put_nibbles(code, out + 8);
}

using BlockFunction = void (*)(const float*, uint8_t*);

BlockFunction function_of(TensorType type) {
  switch (type) {
    case TensorType::kF16:
      return [](const float* x, uint8_t* out) { put_u16(f32_to_f16(*x), out); };
    case TensorType::kBF16:
      return [](const float* x, uint8_t* out) { put_u16(f32_to_bf16(*x), out); };
    case TensorType::kQ8_0:
      return quantize_q8_0;
    case TensorType::kQ4_0:
      return quantize_q4_0;
    case TensorType::kQ4_1:
      return quantize_q4_1;
    case TensorType::kQ5_0:
      return quantize_q5_0;
    case TensorType::kQ5_1:
      return quantize_q5_1;
    case TensorType::kQ4_K:
      return quantize_q4_k;
    case TensorType::kQ5_K:
      return quantize_q5_k;
    case TensorType::kQ6_K:
      return quantize_q6_k;
    default:
      return nullptr;
  }
}

}  // namespace

bool is_target_type(TensorType type) {
  return type == TensorType::kF32 || function_of(type) != nullptr;
}

void quantize_blocks(TensorType type, const float* x, int64_t count, uint8_t* out) {
  if (type == TensorType::kF32) {
    std::memcpy(out, x, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const TensorTypeTraits& traits = traits_of(type);
  const BlockFunction function = function_of(type);
  COX_CHECK(function != nullptr && count % traits.block_elements == 0,
            "a type that can be written, in whole blocks");
  for (int64_t i = 0; i < count; i += traits.block_elements) {
    function(x + i, out);
    out += traits.block_bytes;
  }
}

}  // namespace coxswain::quantize

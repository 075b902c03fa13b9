// Reference of the two matrix products and of the activation quantisation.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "kernels/layout.h"
#include "kernels/scalar/scalar.h"
#include "kernels/scale.h"

namespace coxswain::kernels::scalar {
namespace {

constexpr float kSmallestNormal = std::numeric_limits<float>::min();

// Scale of a block, 0 when it would be subnormal (its reciprocal could overflow), NaN when some
// value is not finite: then every output that uses the block is NaN instead of silently wrong.
float block_scale_of(const float* x) {
  float absmax = 0.0f;
  bool finite = true;
  for (int i = 0; i < 32; ++i) {
    const float magnitude = std::fabs(x[i]);
    finite = finite && magnitude <= std::numeric_limits<float>::max();
    absmax = magnitude > absmax ? magnitude : absmax;
  }
  if (!finite) return std::bit_cast<float>(0x7fc00000u);
  const float scale = absmax / 127.0f;
  return scale < kSmallestNormal ? 0.0f : scale;
}

void quantize_block(const float* x, ActivationBlock& out) {
  out = ActivationBlock{};
  const float scale = block_scale_of(x);
  out.scale = scale;
  out.scaled_sum = scale;
  if (!(scale > 0.0f)) return;  // zero or NaN: all integers stay 0
  const float inverse = 1.0f / scale;
  int32_t sums[2] = {0, 0};
  for (int i = 0; i < 32; ++i) {
    out.q[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
    sums[i / 16] += out.q[i];
  }
  out.neg_sum[0] = -sums[0];
  out.neg_sum[1] = -sums[1];
  out.neg_sum[2] = -(sums[0] + sums[1]);
  out.neg_sum_f[0] = static_cast<float>(out.neg_sum[0]);
  out.neg_sum_f[1] = static_cast<float>(out.neg_sum[1]);
  out.scaled_sum = scale * static_cast<float>(sums[0] + sums[1]);
}

struct PackedBlock {
  const uint8_t* codes;
  const uint8_t* meta;
};

uint16_t meta_half(const PackedBlock& block, int64_t offset, int64_t row) {
  uint16_t value = 0;
  std::memcpy(&value, block.meta + offset + 2 * row, 2);
  return value;
}

unsigned field_at(int bits, const uint8_t* plane, int64_t row, int64_t column) {
  const unsigned byte = plane[field_byte(bits, row, column)];
  return (byte >> field_shift(bits, column)) & ((1u << bits) - 1u);
}

int weight_at(const PackLayout& layout, const PackedBlock& block, int64_t row, int64_t column) {
  const int low = low_bits(layout);
  const int high = high_bits(layout);
  unsigned code = field_at(low, block.codes, row, column);
  if (high > 0) code |= field_at(high, block.codes + 64 * low, row, column) << low;
  return code_value(layout, static_cast<uint8_t>(code));
}

// One block of one output: acc after its fused multiply-adds.
float accumulate(const PackLayout& layout, const PackedBlock& block, int64_t row,
                 const ActivationBlock& act, float acc) {
  int32_t halves[2] = {0, 0};
  for (int64_t c = 0; c < 32; ++c) halves[c / 16] += weight_at(layout, block, row, c) * act.q[c];
  int32_t sum = halves[0] + halves[1];
  if (layout.subs > 0) {
    const uint8_t* subs = block.meta + sub_offset(layout) + row;
    const bool nibbles = layout.min == MinKind::kScaledHalf;
    const auto sub = [&](int64_t i) {
      return nibbles ? subs[i] & 15 : static_cast<int>(std::bit_cast<int8_t>(subs[i]));
    };
    sum = halves[0] * sub(0) + halves[1] * sub(layout.subs == 2 ? 16 : 0);
  }
  const uint16_t stored = layout.scale == ScaleKind::kHalf ? meta_half(block, 0, row)
                                                           : static_cast<uint16_t>(block.meta[row]);
  acc = std::fma(static_cast<float>(sum), block_scale(layout, stored) * act.scale, acc);
  if (layout.min == MinKind::kNone) return acc;
  const float minimum = f16_to_f32(meta_half(block, min_offset(layout), row));
  if (layout.min == MinKind::kHalf) return std::fma(minimum, act.scaled_sum, acc);
  if (layout.min == MinKind::kScaled) {
    const float steps = static_cast<float>(block.meta[submin_offset(layout) + row]);
    return std::fma(-(minimum * steps), act.scaled_sum, acc);
  }
  const uint8_t* pairs = block.meta + sub_offset(layout) + row;
  const int32_t weighted = (pairs[0] >> 4) * act.neg_sum[0] + (pairs[16] >> 4) * act.neg_sum[1];
  return std::fma(static_cast<float>(weighted), minimum * act.scale, acc);
}

float float_weight(TensorType type, const uint8_t* row, int64_t k) {
  if (type == TensorType::kF32) {
    float value = 0.0f;
    std::memcpy(&value, row + 4 * k, 4);
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, row + 2 * k, 2);
  return type == TensorType::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
}

// The reduced axis counts as padded with zeros to a multiple of 16.
float float_dot(TensorType type, const uint8_t* row, const float* x, int64_t k) {
  float lanes[16] = {};
  for (int64_t i = 0; i < k; ++i) {
    lanes[i % 16] = std::fma(x[i], float_weight(type, row, i), lanes[i % 16]);
  }
  for (int64_t i = k; i % 16 != 0; ++i) lanes[i % 16] += 0.0f;
  return lane_tree(lanes);
}

}  // namespace

void quantize_row(const float* x, int64_t k, void* dst) {
  uint8_t* bytes = static_cast<uint8_t*>(dst);
  for (int64_t b = 0; b < k / kActivationBlock; ++b) {
    ActivationBlock block;
    quantize_block(x + b * kActivationBlock, block);
    std::memcpy(bytes + b * static_cast<int64_t>(sizeof(block)), &block, sizeof(block));
  }
}

void matmul_a8(TensorType type, const void* packed, int64_t n_total, int64_t k, const void* acts,
               int64_t row_count, const A8Out& out, int64_t n0, int64_t n1) {
  (void)n_total;
  const PackLayout layout = layout_of(type);
  const int64_t blocks = k / kActivationBlock;
  const int64_t chunk = out.chunk == 0 ? blocks : out.chunk / kActivationBlock;
  const uint8_t* base = static_cast<const uint8_t*>(packed);
  const uint8_t* act_bytes = static_cast<const uint8_t*>(acts);
  for (int64_t r = 0; r < row_count; ++r) {
    const uint8_t* act_row = act_bytes + r * static_cast<int64_t>(quantized_row_bytes(k));
    for (int64_t n = n0; n < n1; ++n) {
      const uint8_t* group = base + n / kRowGroup * group_bytes(layout, blocks);
      float acc = 0.0f;  // of the chunk
      double sum = 0.0;  // of the chunks before
      for (int64_t b = 0; b < blocks; ++b) {
        if (b != 0 && b % chunk == 0) {
          sum = b == chunk ? static_cast<double>(acc) : sum + static_cast<double>(acc);
          acc = 0.0f;
        }
        const BlockPlace place = block_place(layout, blocks, b);
        const PackedBlock block{group + place.codes, group + place.meta};
        ActivationBlock act;
        std::memcpy(&act, act_row + b * static_cast<int64_t>(sizeof(act)), sizeof(act));
        acc = accumulate(layout, block, n % kRowGroup, act, acc);
      }
      sum = blocks <= chunk ? static_cast<double>(acc) : sum + static_cast<double>(acc);
      if (out.sums == nullptr) {
        out.partials[r * out.ld + n] = sum;
      } else {
        const float rounded = static_cast<float>(sum);
        out.sums[r * out.ld + n] = out.bias != nullptr ? rounded + out.bias[n] : rounded;
      }
    }
  }
}

void matmul_float(TensorType type, const void* w, size_t w_row_bytes, int64_t k, const float* x,
                  int64_t ldx, int64_t row_count, const float* bias, float* out, int64_t ldo,
                  int64_t n0, int64_t n1) {
  const uint8_t* base = static_cast<const uint8_t*>(w);
  for (int64_t r = 0; r < row_count; ++r) {
    for (int64_t n = n0; n < n1; ++n) {
      const uint8_t* row = base + n * static_cast<int64_t>(w_row_bytes);
      const float dot = float_dot(type, row, x + r * ldx, k);
      out[r * ldo + n] = bias != nullptr ? dot + bias[n] : dot;
    }
  }
}

}  // namespace coxswain::kernels::scalar

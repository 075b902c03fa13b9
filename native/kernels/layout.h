// The packed weight layout and the quantised activation row: one description for packing, the
// scalar reference and every vector kernel. README.md draws the bytes.
//
// A stored code c of type T stands for the integer w = value(c), and a weight is
//   scale * sub[half] * w - min      half = column / 16 of the 32-column block
// Codes reach the dot product as unsigned bytes u = value(c) + offset; the kernels take the offset
// back exactly by starting the int32 sum at -offset * (sum of the activations).
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/tensor_type.h"
#include "kernels/codebooks.h"

namespace coxswain::kernels {

enum class ScaleKind { kHalf, kE8M0 };  // f16 | exponent byte e: 2^(e-128)
enum class MinKind {
  kNone,
  kHalf,        // an f16 m is added: acc = fma(m, act.scaled_sum, acc)
  kScaled,      // dmin * mn, one mn a block: acc = fma(-(dmin * mn), act.scaled_sum, acc)
  kScaledHalf,  // one mn for each 16 columns: acc = fma(sum of mn * sums, -(dmin * act.scale), acc)
};

struct PackLayout {
  int bits;           // 4 or 8 bits a code
  int offset;         // 0 or a power of two; 0 exactly where the type has minima
  Codebook codebook;  // what the codes stand for; kNone: the code minus offset itself
  ScaleKind scale;
  float factor;  // power of two that the stored scale is multiplied with
  int subs;      // integer sub-scales a block: 0, 1 or 2
  MinKind min;
};

constexpr PackLayout layout_of(TensorType type) {
  constexpr ScaleKind h = ScaleKind::kHalf;
  switch (type) {
    case TensorType::kQ4_0:
      return {4, 8, Codebook::kNone, h, 1.0f, 0, MinKind::kNone};
    case TensorType::kQ4_1:
      return {4, 0, Codebook::kNone, h, 1.0f, 0, MinKind::kHalf};
    case TensorType::kQ5_0:
      return {8, 16, Codebook::kNone, h, 1.0f, 0, MinKind::kNone};
    case TensorType::kQ5_1:
      return {8, 0, Codebook::kNone, h, 1.0f, 0, MinKind::kHalf};
    case TensorType::kQ8_0:
      return {8, 128, Codebook::kNone, h, 1.0f, 0, MinKind::kNone};
    case TensorType::kQ2_K:
      return {4, 0, Codebook::kNone, h, 1.0f, 2, MinKind::kScaledHalf};
    case TensorType::kQ3_K:
      return {4, 4, Codebook::kNone, h, 1.0f, 2, MinKind::kNone};
    case TensorType::kQ4_K:
      return {4, 0, Codebook::kNone, h, 1.0f, 1, MinKind::kScaled};
    case TensorType::kQ5_K:
      return {8, 0, Codebook::kNone, h, 1.0f, 1, MinKind::kScaled};
    case TensorType::kQ6_K:
      return {8, 32, Codebook::kNone, h, 1.0f, 2, MinKind::kNone};
    case TensorType::kIQ2_XXS:
      return {4, 64, Codebook::kIq2, h, 0.125f, 1, MinKind::kNone};
    case TensorType::kIQ2_XS:
    case TensorType::kIQ2_S:
      return {4, 64, Codebook::kIq2, h, 0.125f, 2, MinKind::kNone};
    case TensorType::kIQ3_XXS:
      return {4, 64, Codebook::kIq3Xxs, h, 0.25f, 1, MinKind::kNone};
    case TensorType::kIQ3_S:
      return {4, 16, Codebook::kIq3S, h, 1.0f, 1, MinKind::kNone};
    case TensorType::kIQ4_NL:
      return {4, 128, Codebook::kIq4, h, 1.0f, 0, MinKind::kNone};
    case TensorType::kIQ4_XS:
      return {4, 128, Codebook::kIq4, h, 1.0f, 1, MinKind::kNone};
    case TensorType::kMXFP4:
      return {4, 16, Codebook::kMxfp4, ScaleKind::kE8M0, 1.0f, 0, MinKind::kNone};
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
      break;
  }
  return {0, 0, Codebook::kNone, h, 0.0f, 0, MinKind::kNone};  // not a block type: bits 0
}

// Bytes of one 32-column block of a 16-row group: the codes, and beside them the scale record
//   scale[16] (f16 | u8) · min[16] (f16) · sub[subs][16] (i8) · mn[1 or 2][16] (u8)
constexpr int64_t code_bytes(const PackLayout& layout) { return 64 * layout.bits; }
constexpr int64_t scale_bytes(const PackLayout& layout) {
  return layout.scale == ScaleKind::kHalf ? 32 : 16;
}
constexpr int64_t min_offset(const PackLayout& layout) { return scale_bytes(layout); }
constexpr int64_t sub_offset(const PackLayout& layout) {
  return min_offset(layout) + (layout.min == MinKind::kNone ? 0 : 32);
}
constexpr int64_t submin_offset(const PackLayout& layout) {
  return sub_offset(layout) + 16 * layout.subs;
}
constexpr int64_t meta_bytes(const PackLayout& layout) {
  const int64_t submins = layout.min == MinKind::kScaled       ? 16
                          : layout.min == MinKind::kScaledHalf ? 32
                                                               : 0;
  return submin_offset(layout) + submins;
}
// One group: all blocks' codes, then all blocks' scale records, rounded up to a cache line.
constexpr int64_t group_bytes(const PackLayout& layout, int64_t blocks) {
  return (blocks * (code_bytes(layout) + meta_bytes(layout)) + 63) / 64 * 64;
}

// Position of column k (0..31) of row r (0..15) in a block's codes: 4 columns of 16 rows make 64
// bytes. 8 bits: byte (k/4)*64 + r*4 + k%4. 4 bits: columns 16..31 are the high nibbles of columns
// 0..15.
constexpr int64_t code_byte(int64_t row, int64_t column) {
  return column / 4 * 64 + row * 4 + column % 4;
}

// One 32-column block of a quantised activation row; rows are arrays of these.
struct ActivationBlock {
  int8_t q[32];
  float scale;  // absmax / 127; NaN when a value was not finite, 0 for a block of (almost) zeros
  float scaled_sum;    // scale * (sum of q), rounded once
  int32_t neg_sum[3];  // -(sum of q): columns 0..15, 16..31, all
  float neg_sum_f[2];  // the first two as floats
  int32_t unused;      // zero
};
static_assert(sizeof(ActivationBlock) == 64);

}  // namespace coxswain::kernels

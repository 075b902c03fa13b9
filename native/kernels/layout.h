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
  kScaledHalf,  // one mn for each 16 columns: acc = fma(sum of mn * sums, -(dmin * act.scale),
                // acc); of four bits, as the sub-scale, whose byte it shares
};

struct PackLayout {
  int bits;           // of a code: 2, 4 or 8, or 3, 5 or 6: their high bits lie apart
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
      return {5, 16, Codebook::kNone, h, 1.0f, 0, MinKind::kNone};
    case TensorType::kQ5_1:
      return {5, 0, Codebook::kNone, h, 1.0f, 0, MinKind::kHalf};
    case TensorType::kQ8_0:
      return {8, 128, Codebook::kNone, h, 1.0f, 0, MinKind::kNone};
    case TensorType::kQ2_K:
      return {2, 0, Codebook::kNone, h, 1.0f, 2, MinKind::kScaledHalf};
    case TensorType::kQ3_K:
      return {3, 4, Codebook::kNone, h, 1.0f, 2, MinKind::kNone};
    case TensorType::kQ4_K:
      return {4, 0, Codebook::kNone, h, 1.0f, 1, MinKind::kScaled};
    case TensorType::kQ5_K:
      return {5, 0, Codebook::kNone, h, 1.0f, 1, MinKind::kScaled};
    case TensorType::kQ6_K:
      return {6, 32, Codebook::kNone, h, 1.0f, 2, MinKind::kNone};
    case TensorType::kIQ2_XXS:
      return {3, 64, Codebook::kIq2, h, 0.125f, 1, MinKind::kNone};
    case TensorType::kIQ2_XS:
    case TensorType::kIQ2_S:
      return {3, 64, Codebook::kIq2, h, 0.125f, 2, MinKind::kNone};
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
//   scale[16] (f16 | u8) · min[16] (f16) · sub[subs][16] (i8) · mn[16] (u8, kScaled)
// kScaledHalf: a byte of sub holds the sub-scale in its low half and mn in its high half.
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
  return submin_offset(layout) + (layout.min == MinKind::kScaled ? 16 : 0);
}
// A group is one stream, read from its first byte to its last: units of 1, 2 or 4 blocks (so many
// that their scale records fill whole cache lines), each the codes of its blocks and then their
// records. The last unit may have fewer blocks; the group is rounded up to a cache line.
constexpr int64_t unit_blocks(const PackLayout& layout) {
  const int64_t rest = meta_bytes(layout) % 64;
  return rest == 0 ? 1 : rest == 32 ? 2 : 4;
}
constexpr int64_t block_bytes(const PackLayout& layout) {
  return code_bytes(layout) + meta_bytes(layout);
}
constexpr int64_t group_bytes(const PackLayout& layout, int64_t blocks) {
  return (blocks * block_bytes(layout) + 63) / 64 * 64;
}
// Offsets of block b in a group of `blocks`.
struct BlockPlace {
  int64_t codes, meta;
};
constexpr BlockPlace block_place(const PackLayout& layout, int64_t blocks, int64_t b) {
  const int64_t unit = unit_blocks(layout);
  const int64_t first = b / unit * unit;
  const int64_t count = blocks - first < unit ? blocks - first : unit;
  const int64_t codes = first * block_bytes(layout) + (b - first) * code_bytes(layout);
  return {codes, first * block_bytes(layout) + count * code_bytes(layout) +
                     (b - first) * meta_bytes(layout)};
}

// Codes of a block lie in planes of fields: a plane of b-bit fields is b lines of 64 bytes. Field
// (row, column) is in byte row*4 + column%4 of its line. The eight quads of columns (column / 4)
// are spread over the lines, 8/b to a line:
//   8, 2 and 1 bits   line quad*b/8, in ascending bits
//   4 bits            line quad % 4, the low half for quads 0..3 and the high half for 4..7
// A code of 2, 4 or 8 bits is one plane; of 3, 5, 6 bits a plane of its low 2, 4, 4 bits and behind
// it one of its high 1, 1, 2 bits.
constexpr int high_bits(const PackLayout& layout) {
  return layout.bits == 6 ? 2 : layout.bits == 3 || layout.bits == 5 ? 1 : 0;
}
constexpr int low_bits(const PackLayout& layout) { return layout.bits - high_bits(layout); }
constexpr int64_t field_line(int bits, int64_t column) {
  const int64_t quad = column / 4;
  return bits == 4 ? quad % 4 : quad * bits / 8;
}
constexpr int field_shift(int bits, int64_t column) {
  const int quad = static_cast<int>(column / 4);
  return bits == 4 ? quad / 4 * 4 : quad * bits % 8;
}
constexpr int64_t field_byte(int bits, int64_t row, int64_t column) {
  return field_line(bits, column) * 64 + row * 4 + column % 4;
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

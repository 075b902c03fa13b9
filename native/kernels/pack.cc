// Packing of file rows into the interleaved layout of layout.h, and dequantisation of file rows.
#include <cstring>

#include "base/error.h"
#include "base/half.h"
#include "kernels/blocks.h"
#include "kernels/kernels.h"
#include "kernels/layout.h"
#include "kernels/scale.h"

namespace coxswain::kernels {
namespace {

void put_u16(uint8_t* p, uint16_t v) {
  p[0] = static_cast<uint8_t>(v & 0xffu);
  p[1] = static_cast<uint8_t>(v >> 8);
}

// Rows past the matrix have scale 0 and minimum 0, whatever their codes.
constexpr BlockCodes kEmptyBlock{};

// One plane: bits [from, from + Bits) of the codes of one row.
template <int Bits>
void put_plane(const BlockCodes& block, int from, int64_t row, uint8_t* plane) {
  constexpr unsigned kMask = (1u << Bits) - 1u;
  uint8_t lines[Bits][4] = {};
  for (int64_t column = 0; column < 32; ++column) {
    const unsigned field = (static_cast<unsigned>(block.code[column]) >> from) & kMask;
    uint8_t& byte = lines[field_line(Bits, column)][column % 4];
    byte = static_cast<uint8_t>(byte | (field << field_shift(Bits, column)));
  }
  for (int line = 0; line < Bits; ++line) std::memcpy(plane + 64 * line + 4 * row, lines[line], 4);
}

void put_codes(const PackLayout& layout, const BlockCodes& block, int64_t row, uint8_t* codes) {
  const int low = low_bits(layout);
  const int high = high_bits(layout);
  if (low == 8) put_plane<8>(block, 0, row, codes);
  if (low == 4) put_plane<4>(block, 0, row, codes);
  if (low == 2) put_plane<2>(block, 0, row, codes);
  if (high == 2) put_plane<2>(block, low, row, codes + 64 * low);
  if (high == 1) put_plane<1>(block, low, row, codes + 64 * low);
}

void put_meta(const PackLayout& layout, const BlockCodes& block, int64_t row, uint8_t* meta) {
  if (layout.scale == ScaleKind::kHalf) {
    put_u16(meta + 2 * row, block.scale);
  } else {
    meta[row] = static_cast<uint8_t>(block.scale);
  }
  if (layout.min != MinKind::kNone) put_u16(meta + min_offset(layout) + 2 * row, block.min);
  for (int i = 0; i < layout.subs; ++i) {
    std::memcpy(meta + sub_offset(layout) + 16 * i + row, &block.sub[i], 1);
  }
  if (layout.min == MinKind::kScaled) meta[submin_offset(layout) + row] = block.sub_min[0];
  if (layout.min == MinKind::kScaledHalf) {
    for (int i = 0; i < 2; ++i) {
      uint8_t& byte = meta[sub_offset(layout) + 16 * i + row];
      byte = static_cast<uint8_t>(byte | (static_cast<unsigned>(block.sub_min[i]) << 4));
    }
  }
}

// What the 16 columns of a half have in common: a weight is scale * value - minimum.
struct HalfScales {
  float scale;
  float minimum;
};

HalfScales scales_of_half(const PackLayout& layout, const BlockCodes& block, int half) {
  const float scale =
      block_scale(layout, block.scale) * static_cast<float>(block.sub[half]);  // exact
  if (layout.min == MinKind::kNone) return {scale, 0.0f};
  const float minimum = f16_to_f32(block.min);
  if (layout.min == MinKind::kHalf) return {scale, -minimum};
  return {scale, minimum * static_cast<float>(block.sub_min[half])};
}

// `values`: what the codes of up to 4 bits stand for, or nullptr.
void dequantize_block(const PackLayout& layout, const float* values, const BlockCodes& block,
                      float* dst) {
  const float offset = static_cast<float>(layout.offset);
  for (int half = 0; half < 2; ++half) {
    const auto [scale, minimum] = scales_of_half(layout, block, half);
    const uint8_t* code = block.code + 16 * half;
    float* out = dst + 16 * half;
    for (int c = 0; c < 16; ++c) {
      const float value =
          values != nullptr ? values[code[c]] : static_cast<float>(code[c]) - offset;
      out[c] = scale * value - minimum;
    }
  }
}

}  // namespace

size_t packed_bytes(TensorType type, int64_t rows, int64_t k) {
  const PackLayout layout = layout_of(type);
  COX_CHECK(layout.bits != 0 && k % kActivationBlock == 0, "only block types are packed");
  const int64_t groups = (rows + kRowGroup - 1) / kRowGroup;
  return static_cast<size_t>(groups * group_bytes(layout, k / kActivationBlock));
}

void pack_rows(TensorType type, const void* src, size_t src_row_bytes, int64_t k0, int64_t k,
               int64_t row0, int64_t row_count, void* dst) {
  const PackLayout layout = layout_of(type);
  COX_CHECK(layout.bits != 0 && k % kActivationBlock == 0 && k0 % kActivationBlock == 0 &&
                row0 % kRowGroup == 0,
            "packing works on whole blocks and groups");
  const int64_t blocks = k / kActivationBlock;
  const int64_t first_block = k0 / kActivationBlock;
  const uint8_t* file = static_cast<const uint8_t*>(src);
  uint8_t* group = static_cast<uint8_t*>(dst) + row0 / kRowGroup * group_bytes(layout, blocks);
  for (int64_t g = 0; g < row_count; g += kRowGroup, group += group_bytes(layout, blocks)) {
    for (int64_t r = 0; r < kRowGroup; ++r) {
      const bool present = g + r < row_count;
      const uint8_t* row = file + (present ? g + r : 0) * static_cast<int64_t>(src_row_bytes);
      for (int64_t b = 0; b < blocks; ++b) {
        BlockCodes block = kEmptyBlock;
        if (present) read_block(type, row, first_block + b, block);
        const BlockPlace place = block_place(layout, blocks, b);
        put_codes(layout, block, r, group + place.codes);
        put_meta(layout, block, r, group + place.meta);
      }
    }
    const int64_t used = blocks * block_bytes(layout);
    std::memset(group + used, 0, static_cast<size_t>(group_bytes(layout, blocks) - used));
  }
}

void dequantize_row(TensorType type, const void* src, int64_t k0, int64_t k, float* dst) {
  const uint8_t* bytes = static_cast<const uint8_t*>(src);
  if (type == TensorType::kF32) {
    std::memcpy(dst, bytes + 4 * k0, static_cast<size_t>(4 * k));
    return;
  }
  if (type == TensorType::kF16 || type == TensorType::kBF16) {
    for (int64_t i = 0; i < k; ++i) {
      uint16_t half = 0;
      std::memcpy(&half, bytes + 2 * (k0 + i), 2);
      dst[i] = type == TensorType::kF16 ? f16_to_f32(half) : bf16_to_f32(half);
    }
    return;
  }
  COX_CHECK(k0 % kActivationBlock == 0 && k % kActivationBlock == 0, "whole 32-column blocks");
  const PackLayout layout = layout_of(type);
  float values[16];
  const bool few = layout.bits <= 4;
  if (few) {
    for (uint8_t code = 0; code < 1 << layout.bits; ++code) {
      values[code] = static_cast<float>(code_value(layout, code));
    }
  }
  BlockCodes block;
  for (int64_t b = 0; b < k / kActivationBlock; ++b) {
    read_block(type, bytes, k0 / kActivationBlock + b, block);
    dequantize_block(layout, few ? values : nullptr, block, dst + 32 * b);
  }
}

}  // namespace coxswain::kernels

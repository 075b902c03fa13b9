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

void put_codes(const PackLayout& layout, const BlockCodes& block, int64_t row, uint8_t* codes) {
  if (layout.bits == 8) {
    for (int64_t c = 0; c < 32; ++c) codes[code_byte(row, c)] = block.code[c];
    return;
  }
  for (int64_t c = 0; c < 16; ++c) {
    codes[code_byte(row, c)] =
        static_cast<uint8_t>(block.code[c] | (static_cast<unsigned>(block.code[c + 16]) << 4));
  }
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
  const int minima = layout.min == MinKind::kScaled       ? 1
                     : layout.min == MinKind::kScaledHalf ? 2
                                                          : 0;
  for (int i = 0; i < minima; ++i) meta[submin_offset(layout) + 16 * i + row] = block.sub_min[i];
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

// `values`: what the 16 codes of a 4-bit type stand for, or nullptr.
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
    uint8_t* metas = group + blocks * code_bytes(layout);
    for (int64_t r = 0; r < kRowGroup; ++r) {
      const bool present = g + r < row_count;
      const uint8_t* row = file + (present ? g + r : 0) * static_cast<int64_t>(src_row_bytes);
      for (int64_t b = 0; b < blocks; ++b) {
        BlockCodes block = kEmptyBlock;
        if (present) read_block(type, row, first_block + b, block);
        put_codes(layout, block, r, group + b * code_bytes(layout));
        put_meta(layout, block, r, metas + b * meta_bytes(layout));
      }
    }
    const int64_t used = blocks * (code_bytes(layout) + meta_bytes(layout));
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
  if (layout.bits == 4) {
    for (uint8_t code = 0; code < 16; ++code) {
      values[code] = static_cast<float>(code_value(layout, code));
    }
  }
  BlockCodes block;
  for (int64_t b = 0; b < k / kActivationBlock; ++b) {
    read_block(type, bytes, k0 / kActivationBlock + b, block);
    dequantize_block(layout, layout.bits == 4 ? values : nullptr, block, dst + 32 * b);
  }
}

}  // namespace coxswain::kernels

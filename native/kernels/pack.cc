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

void dequantize_block(TensorType type, const PackLayout& layout, const uint8_t* row, int64_t index,
                      float* dst) {
  BlockCodes block;
  read_block(type, row, index, block);
  const float scale = block_scale(layout, block.scale);
  const float minimum = layout.min == MinKind::kNone ? 0.0f : f16_to_f32(block.min);
  for (int c = 0; c < 32; ++c) {
    const int half = c / 16;
    const int w = code_value(layout, block.code[c]);
    const float product = scale * static_cast<float>(block.sub[half]) * static_cast<float>(w);
    switch (layout.min) {
      case MinKind::kNone:
        dst[c] = product;
        break;
      case MinKind::kHalf:
        dst[c] = product + minimum;
        break;
      case MinKind::kScaled:
      case MinKind::kScaledHalf:
        dst[c] = product - minimum * static_cast<float>(block.sub_min[half]);
        break;
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
  for (int64_t b = 0; b < k / kActivationBlock; ++b) {
    dequantize_block(type, layout, bytes, k0 / kActivationBlock + b, dst + 32 * b);
  }
}

}  // namespace coxswain::kernels

// The scalar meaning of packed scales and codes, for packing, dequantisation and the reference
// kernels. Not for the vector files: an inline function compiled there could be the copy the linker
// keeps.
#pragma once
#include <bit>
#include <cstdint>

#include "base/half.h"
#include "kernels/layout.h"

namespace coxswain::kernels {

// 2^(e-128); e = 0 and 1 are subnormal floats. e = 255 (the format's NaN) is 2^127, as in ggml.
inline float e8m0_half(uint32_t e) {
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

inline float block_scale(const PackLayout& layout, uint16_t stored) {
  if (layout.scale == ScaleKind::kE8M0) return e8m0_half(stored);
  return f16_to_f32(stored) * layout.factor;
}

inline int code_value(const PackLayout& layout, uint8_t code) {
  if (layout.codebook == Codebook::kNone) return code - layout.offset;
  return codebook_value(layout.codebook, code);
}

}  // namespace coxswain::kernels

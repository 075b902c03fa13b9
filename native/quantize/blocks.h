// Floats -> blocks of the GGUF tensor types, the inverse of kernels/blocks.h.
//
// Pure: a block's bytes depend on its own floats only, and are the same on every processor.
// F16 and BF16 round half to even. Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 are the usual plain rounding,
// equal byte for byte to llama.cpp's. Q4_K, Q5_K and Q6_K search scales and minima for the smallest
// weighted squared error.
#pragma once
#include <cstdint>

#include "base/tensor_type.h"

namespace coxswain::quantize {

// Types that quantize_blocks() writes.
bool is_target_type(TensorType type);

// x: `count` finite floats with |x| <= 65504 (any finite one for F32 and BF16), a multiple of the
// type's block elements; out: row_bytes(type, count) bytes.
void quantize_blocks(TensorType type, const float* x, int64_t count, uint8_t* out);

// The block types of one file each; x holds one block.
void quantize_q4_k(const float* x, uint8_t* out);  // 256 floats, 144 bytes
void quantize_q5_k(const float* x, uint8_t* out);  // 256 floats, 176 bytes
void quantize_q6_k(const float* x, uint8_t* out);  // 256 floats, 210 bytes

inline void put_u16(uint16_t value, uint8_t* out) {
  out[0] = static_cast<uint8_t>(value & 0xffu);
  out[1] = static_cast<uint8_t>(value >> 8);
}

}  // namespace coxswain::quantize

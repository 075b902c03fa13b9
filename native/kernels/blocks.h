// One 32-column block of a file row, whatever its type: codes and scales as the packed layout keeps
// them. The only place that knows the file formats of GGUF's block types.
#pragma once
#include <cstdint>

#include "base/tensor_type.h"

namespace coxswain::kernels {

struct BlockCodes {
  uint8_t code[32];  // below 2^bits of the PackLayout
  uint16_t scale;    // f16 bits, or the E8M0 byte
  uint16_t min;      // f16 bits (m or dmin), 0 without minima
  int8_t sub[2];     // sub-scales; one scale a block stands in both
  uint8_t sub_min[2];
};

// row: start of the file row; block: number of the 32-column block in it.
void read_block(TensorType type, const uint8_t* row, int64_t block, BlockCodes& out);

}  // namespace coxswain::kernels

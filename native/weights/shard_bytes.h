// What a part of a matrix occupies in a rank: packed for the int8 kernels, or as rows of the file.
#pragma once
#include <cstdint>

#include "weights/gguf.h"

namespace coxswain::weights {

// Rows x columns of `tensor` as this engine holds them. Block types in the a8 mode are packed
// (groups of 16 rows, layout of kernels/README.md: the sizes equal kernels::packed_bytes);
// everything else runs from the mapped file and counts its own bytes.
uint64_t held_bytes(const TensorInfo& tensor, int64_t rows, int64_t columns, bool exact);
// Bytes of the file that rows x columns stand for: what one token reads of them.
double read_bytes(const TensorInfo& tensor, int64_t rows, int64_t columns);

}  // namespace coxswain::weights

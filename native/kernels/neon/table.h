// The NEON set. The product of block weights exists twice: with the dot-product instruction
// (ARMv8.2 option, asked for at run time) and for plain ARMv8.
#pragma once
#include "kernels/kernels.h"

namespace coxswain::kernels::neon {

const Kernels& table();
void matmul_a8_plain(TensorType type, const void* packed, int64_t n_total, int64_t k,
                     const void* acts, int64_t row_count, const A8Out& out, int64_t n0, int64_t n1);
void matmul_a8_dotprod(TensorType type, const void* packed, int64_t n_total, int64_t k,
                       const void* acts, int64_t row_count, const A8Out& out, int64_t n0,
                       int64_t n1);

}  // namespace coxswain::kernels::neon

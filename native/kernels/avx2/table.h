// The AVX2 set: needs AVX2, FMA and F16C (dispatch.cc checks all of them).
#pragma once
#include "kernels/kernels.h"

namespace coxswain::kernels::avx2 {

const Kernels& table();
void matmul_a8(TensorType type, const void* packed, int64_t n_total, int64_t k, const void* acts,
               int64_t row_count, const A8Out& out, int64_t n0, int64_t n1);

}  // namespace coxswain::kernels::avx2

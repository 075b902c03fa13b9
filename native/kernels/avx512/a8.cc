// The block-quantised product of the AVX-512 set, one instantiation a type and tile height.
#if defined(__x86_64__)
#include "kernels/avx512/a8.h"

#include "kernels/avx512/table.h"
#include "kernels/vector/a8_matmul.h"

namespace coxswain::kernels::avx512 {

void matmul_a8(TensorType type, const void* packed, int64_t n_total, int64_t k, const void* acts,
               int64_t row_count, const A8Out& out, int64_t n0, int64_t n1) {
  vector::matmul_a8<A8>(type, packed, n_total, k, acts, row_count, out, n0, n1);
}

}  // namespace coxswain::kernels::avx512
#endif

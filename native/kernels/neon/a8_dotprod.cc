// The block-quantised product with the dot-product instruction of ARMv8.2 (its own compiler flags).
#if defined(__aarch64__)
#include "kernels/neon/a8.h"
#include "kernels/neon/table.h"
#include "kernels/vector/a8_matmul.h"

namespace coxswain::kernels::neon {
namespace {

struct InstructionDot {
  static COX_INLINE int32x4_t dot(int32x4_t sum, const int8x16_t (&w)[4], int8x16_t act) {
    vector::unroll<4>([&](auto v) COX_INLINE_LAMBDA { sum = vdotq_laneq_s32(sum, w[v], act, v); });
    return sum;
  }
};

}  // namespace

void matmul_a8_dotprod(TensorType type, const void* packed, int64_t n_total, int64_t k,
                       const void* acts, int64_t row_count, const A8Out& out, int64_t n0,
                       int64_t n1) {
  vector::matmul_a8<A8<InstructionDot>>(type, packed, n_total, k, acts, row_count, out, n0, n1);
}

}  // namespace coxswain::kernels::neon
#endif

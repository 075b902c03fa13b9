// The block-quantised product for ARMv8 without the dot-product instruction.
#if defined(__aarch64__)
#include "kernels/neon/a8.h"
#include "kernels/neon/table.h"
#include "kernels/vector/a8_matmul.h"

namespace coxswain::kernels::neon {
namespace {

struct WideningDot {
  // Four rows times four columns a register: 16-bit products, added in pairs twice.
  static COX_INLINE int32x4_t dot(int32x4_t sum, const int8x16_t (&w)[4], int8x16_t act) {
    const int32x4_t columns = vreinterpretq_s32_s8(act);
    vector::unroll<4>([&](auto v) COX_INLINE_LAMBDA {
      const int8x16_t a = vreinterpretq_s8_s32(vdupq_laneq_s32(columns, v));
      const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(w[v]), vget_low_s8(a)));
      const int32x4_t high = vpaddlq_s16(vmull_high_s8(w[v], a));
      sum = vaddq_s32(sum, vpaddq_s32(low, high));
    });
    return sum;
  }
};

}  // namespace

void matmul_a8_plain(TensorType type, const void* packed, int64_t n_total, int64_t k,
                     const void* acts, int64_t row_count, const A8Out& out, int64_t n0,
                     int64_t n1) {
  vector::matmul_a8<A8<WideningDot>>(type, packed, n_total, k, acts, row_count, out, n0, n1);
}

}  // namespace coxswain::kernels::neon
#endif

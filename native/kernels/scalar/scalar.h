// The reference set: plain loops that spell out every order of operations. Vector sets must return
// the same bits; the tests compare them with these functions.
#pragma once
#include "kernels/kernels.h"

namespace coxswain::kernels::scalar {

void quantize_row(const float* x, int64_t k, void* dst);
void matmul_a8(TensorType type, const void* packed, int64_t n_total, int64_t k, const void* acts,
               int64_t row_count, const A8Out& out, int64_t n0, int64_t n1);
void matmul_float(TensorType type, const void* w, size_t w_row_bytes, int64_t k, const float* x,
                  int64_t ldx, int64_t row_count, const float* bias, float* out, int64_t ldo,
                  int64_t n0, int64_t n1);
void rms_norm(const float* x, const float* w, float eps, int64_t n, float* y);
void swiglu(const float* gate, const float* up, int64_t n, float* y);
void add(float* x, const float* y, int64_t n);
void rope(float* x, int64_t heads, int64_t head_dim, int64_t n_rot, const float* cos,
          const float* sin, RopeStyle style);
void store_value(const float* x, int64_t head_dim, KvType type, void* dst);
void store_key(const float* x, int64_t head_dim, KvType type, void* block, int64_t token);
void attention(const AttentionArgs& args);
void max_sum_exp(const float* x, int64_t n, float* max, float* sum);

// lane i += lane i+8, i+4, i+2, i+1: the fixed tree of every float reduction.
inline float lane_tree(float lanes[16]) {
  for (int width = 8; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

const Kernels& table();

}  // namespace coxswain::kernels::scalar

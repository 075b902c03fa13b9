// Reference of everything between the matrices except attention, and the scalar table.
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "kernels/attention_shape.h"
#include "kernels/scalar/scalar.h"

namespace coxswain::kernels::scalar {

void rms_norm(const float* x, const float* w, float eps, int64_t n, float* y) {
  float lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % 16] = std::fma(x[i], x[i], lanes[i % 16]);
  const float mean = lane_tree(lanes) / static_cast<float>(n);
  const float scale = 1.0f / std::sqrt(mean + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale * w[i];
}

void swiglu(const float* gate, const float* up, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = gate[i];
    y[i] = g / (1.0f + exact_exp(-g)) * up[i];
  }
}

void add(float* x, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}

void rope(float* x, int64_t heads, int64_t head_dim, int64_t n_rot, const float* cos,
          const float* sin, RopeStyle style) {
  const int64_t pairs = n_rot / 2;
  const bool split = style == RopeStyle::kHalfSplit;
  for (int64_t h = 0; h < heads; ++h) {
    float* head = x + h * head_dim;
    for (int64_t i = 0; i < pairs; ++i) {
      float& first = head[split ? i : 2 * i];
      float& second = head[split ? i + pairs : 2 * i + 1];
      const float a = first;
      const float b = second;
      first = std::fma(a, cos[i], -(b * sin[i]));
      second = std::fma(b, cos[i], a * sin[i]);
    }
  }
}

namespace {

void put_element(float x, KvType type, void* dst, int64_t index) {
  uint8_t* bytes = static_cast<uint8_t*>(dst);
  if (type == KvType::kF32) {
    std::memcpy(bytes + 4 * index, &x, 4);
    return;
  }
  const uint16_t half = f32_to_f16(x);
  std::memcpy(bytes + 2 * index, &half, 2);
}

}  // namespace

void store_value(const float* x, int64_t head_dim, KvType type, void* dst) {
  for (int64_t d = 0; d < head_dim; ++d) put_element(x[d], type, dst, d);
}

void store_key(const float* x, int64_t head_dim, KvType type, void* block, int64_t token) {
  int64_t element = key_group_start(token, head_dim) + token % kKeyGroup;
  for (int64_t index = 0; index < 16; ++index) {
    for (int64_t d = key_lane(index); d < head_dim; d += 16, element += kKeyGroup) {
      put_element(x[d], type, block, element);
    }
  }
}

void max_sum_exp(const float* x, int64_t n, float* max, float* sum) {
  float best = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < n; ++i) best = x[i] > best ? x[i] : best;
  float lanes[16] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i % 16] += exact_exp(x[i] - best);
  *max = best + 0.0f;  // a zero of either sign comes out positive
  *sum = lane_tree(lanes);
}

const Kernels& table() {
  static constexpr Kernels kTable{Isa::kScalar, quantize_row, matmul_a8, matmul_float,
                                  rms_norm,     swiglu,       add,       rope,
                                  store_value,  store_key,    attention, max_sum_exp};
  return kTable;
}

}  // namespace coxswain::kernels::scalar

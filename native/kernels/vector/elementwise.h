// Everything between the matrices except attention, on 16 lanes. Orders of operations: scalar/.
#pragma once
#include <cmath>
#include <cstdint>

#include "kernels/attention_shape.h"
#include "kernels/kernels.h"
#include "kernels/layout.h"
#include "kernels/vector/math.h"

namespace coxswain::kernels::vector {

template <class L>
void rms_norm(const float* x, const float* w, float eps, int64_t n, float* y) {
  using F = typename L::F;
  F squares = L::zero();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const F v = L::load(x + i);
    squares = L::fma(v, v, squares);
  }
  if (i < n) {
    const F v = L::load_partial(x + i, n - i);
    squares = L::fma(v, v, squares);
  }
  const float mean = L::tree(squares) / static_cast<float>(n);
  const F scale = L::set1(1.0f / L::sqrt1(mean + eps));
  for (i = 0; i + 16 <= n; i += 16) {
    L::store(y + i, L::mul(L::mul(L::load(x + i), scale), L::load(w + i)));
  }
  if (i < n) {
    const F v = L::mul(L::load_partial(x + i, n - i), scale);
    L::store_partial(y + i, L::mul(v, L::load_partial(w + i, n - i)), n - i);
  }
}

template <class L>
COX_INLINE typename L::F silu_times(typename L::F gate, typename L::F up) {
  const typename L::F denominator = L::add(L::set1(1.0f), exp_lanes<L>(L::neg(gate)));
  return L::mul(L::div(gate, denominator), up);
}

template <class L>
void swiglu(const float* gate, const float* up, int64_t n, float* y) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    L::store(y + i, silu_times<L>(L::load(gate + i), L::load(up + i)));
  }
  if (i < n) {
    L::store_partial(
        y + i, silu_times<L>(L::load_partial(gate + i, n - i), L::load_partial(up + i, n - i)),
        n - i);
  }
}

template <class L>
void add(float* x, const float* y, int64_t n) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) L::store(x + i, L::add(L::load(x + i), L::load(y + i)));
  if (i < n) {
    L::store_partial(x + i, L::add(L::load_partial(x + i, n - i), L::load_partial(y + i, n - i)),
                     n - i);
  }
}

// first' = fma(first, cos, -(second * sin)), second' = fma(second, cos, first * sin)
template <class L>
COX_INLINE void rope_split(float* head, int64_t pairs, const float* cos, const float* sin) {
  using F = typename L::F;
  for (int64_t i = 0; i < pairs; i += 16) {
    const int64_t count = pairs - i < 16 ? pairs - i : 16;
    const F a = L::load_partial(head + i, count);
    const F b = L::load_partial(head + pairs + i, count);
    const F c = L::load_partial(cos + i, count);
    const F s = L::load_partial(sin + i, count);
    L::store_partial(head + i, L::fma(a, c, L::neg(L::mul(b, s))), count);
    L::store_partial(head + pairs + i, L::fma(b, c, L::mul(a, s)), count);
  }
}

template <class L>
COX_INLINE void rope_interleaved(float* head, int64_t pairs, const float* cos, const float* sin) {
  using F = typename L::F;
  for (int64_t i = 0; i < pairs; i += 8) {
    const int64_t count = pairs - i < 8 ? pairs - i : 8;
    const F x = L::load_partial(head + 2 * i, 2 * count);
    const F c = L::load_pairs(cos + i, count);
    const F s = L::negate_even(L::load_pairs(sin + i, count));
    L::store_partial(head + 2 * i, L::fma(x, c, L::mul(L::swap_pairs(x), s)), 2 * count);
  }
}

template <class L>
void rope(float* x, int64_t heads, int64_t head_dim, int64_t n_rot, const float* cos,
          const float* sin, RopeStyle style) {
  for (int64_t h = 0; h < heads; ++h) {
    float* head = x + h * head_dim;
    if (style == RopeStyle::kHalfSplit) {
      rope_split<L>(head, n_rot / 2, cos, sin);
    } else {
      rope_interleaved<L>(head, n_rot / 2, cos, sin);
    }
  }
}

template <class L>
void store_value(const float* x, int64_t head_dim, KvType type, void* dst) {
  const int64_t n = head_dim;
  if (type == KvType::kF32) {
    __builtin_memcpy(dst, x, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  uint8_t* bytes = static_cast<uint8_t*>(dst);
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) L::store_f16(bytes + 2 * i, L::load(x + i));
  if (i < n) {
    alignas(64) uint8_t last[32];
    L::store_f16(last, L::load_partial(x + i, n - i));
    __builtin_memcpy(bytes + 2 * i, last, static_cast<size_t>(2 * (n - i)));
  }
}

// Element by element into the token's place of each column.
template <class L, class Element>
COX_INLINE void scatter_key(const Element* values, int64_t head_dim, void* block, int64_t token) {
  Element* at = static_cast<Element*>(block) + key_group_start(token, head_dim) + token % kKeyGroup;
  for (int64_t index = 0; index < 16; ++index) {
    for (int64_t d = key_lane(index); d < head_dim; d += 16, at += kKeyGroup) *at = values[d];
  }
}

template <class L>
void store_key(const float* x, int64_t head_dim, KvType type, void* block, int64_t token) {
  if (type == KvType::kF32) return scatter_key<L>(x, head_dim, block, token);
  constexpr int64_t kMost = 256;  // columns converted at a time: all of most models
  if (head_dim <= kMost) {
    alignas(64) uint16_t halves[kMost];
    store_value<L>(x, head_dim, type, halves);
    return scatter_key<L>(halves, head_dim, block, token);
  }
  alignas(64) uint16_t one[16];
  uint16_t* at =
      static_cast<uint16_t*>(block) + key_group_start(token, head_dim) + token % kKeyGroup;
  for (int64_t index = 0; index < 16; ++index) {
    for (int64_t d = key_lane(index); d < head_dim; d += 16, at += kKeyGroup) {
      L::store_f16(reinterpret_cast<uint8_t*>(one), L::set1(x[d]));
      *at = one[0];
    }
  }
}

// max over x, -infinity when there is none. Zero comes out positive whatever its sign.
template <class L>
COX_INLINE float max_of(const float* x, int64_t n) {
  using F = typename L::F;
  const F lowest = L::set1(-__builtin_inff());
  F best = lowest;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) best = L::max(L::load(x + i), best);
  if (i < n) best = L::max(L::select_first(L::load_partial(x + i, n - i), lowest, n - i), best);
  return L::max_tree(best) + 0.0f;
}

template <class L>
void max_sum_exp(const float* x, int64_t n, float* max, float* sum) {
  using F = typename L::F;
  const float best = max_of<L>(x, n);
  F sums = L::zero();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    sums = L::add(sums, exp_lanes<L>(L::sub(L::load(x + i), L::set1(best))));
  }
  if (i < n) {
    const F e = exp_lanes<L>(L::sub(L::load_partial(x + i, n - i), L::set1(best)));
    sums = L::add(sums, L::select_first(e, L::zero(), n - i));
  }
  *max = best;
  *sum = L::tree(sums);
}

template <class L>
void quantize_row(const float* x, int64_t k, void* dst) {
  using F = typename L::F;
  uint8_t* bytes = static_cast<uint8_t*>(dst);
  for (int64_t at = 0; at < k; at += kActivationBlock, bytes += sizeof(ActivationBlock)) {
    ActivationBlock block;
    __builtin_memset(&block, 0, sizeof block);
    const F first = L::load(x + at);
    const F second = L::load(x + at + 16);
    const F magnitude = L::max(L::abs(first), L::abs(second));
    float scale = L::max_tree(magnitude) / 127.0f;
    if (scale < 0x1p-126f) scale = 0.0f;
    if (!L::all_finite(first, second)) scale = __builtin_nanf("");
    block.scale = scale;
    block.scaled_sum = scale;
    if (scale > 0.0f) {
      const F inverse = L::set1(1.0f / scale);
      const int32_t sum0 = L::round_to_int8(L::mul(first, inverse), block.q);
      const int32_t sum1 = L::round_to_int8(L::mul(second, inverse), block.q + 16);
      block.neg_sum[0] = -sum0;
      block.neg_sum[1] = -sum1;
      block.neg_sum[2] = -(sum0 + sum1);
      block.neg_sum_f[0] = static_cast<float>(-sum0);
      block.neg_sum_f[1] = static_cast<float>(-sum1);
      block.scaled_sum = scale * static_cast<float>(sum0 + sum1);
    }
    __builtin_memcpy(bytes, &block, sizeof block);
  }
}

}  // namespace coxswain::kernels::vector

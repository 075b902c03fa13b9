// Float weights times float activations: tiles of several outputs, each with its 16 lanes.
//
// A tile of W weight rows and X activation rows keeps W*X accumulators in registers over the whole
// K; each converted weight vector serves X rows. Rows are taken in panels that stay in the
// second-level cache while all weight rows pass.
#pragma once
#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/vector/unroll.h"

namespace coxswain::kernels::vector {

inline constexpr int64_t kPanelBytes = 256 * 1024;

// Tree sums of N accumulators into out[0..N).
template <class L, int N>
COX_INLINE void reduce(const typename L::F (&acc)[N], float* out) {
  if constexpr (N == 16) {
    L::store(out, L::tree16(acc));
  } else {
    unroll<N / 4>([&](auto i) COX_INLINE_LAMBDA {
      L::tree4(acc[4 * i], acc[4 * i + 1], acc[4 * i + 2], acc[4 * i + 3], out + 4 * i);
    });
    unroll<N % 4>([&](auto i)
                      COX_INLINE_LAMBDA { out[N / 4 * 4 + i] = L::tree(acc[N / 4 * 4 + i]); });
  }
}

template <class L, TensorType T>
struct FloatOperands {
  static constexpr int64_t kBytes = T == TensorType::kF32 ? 4 : 2;
  const uint8_t* w;
  int64_t w_stride;  // bytes
  const float* x;
  int64_t ldx;
  int64_t k;
  const float* bias;
  float* out;
  int64_t ldo;

  template <int W, int X>
  COX_INLINE void tile(int64_t n, int64_t r) const {
    using F = typename L::F;
    F acc[W * X];
    unroll<W * X>([&](auto i) COX_INLINE_LAMBDA { acc[i] = L::zero(); });
    const uint8_t* weights = w + n * w_stride;
    const float* rows = x + r * ldx;
    int64_t i = 0;
    for (; i + 16 <= k; i += 16) {
      // The rows of the next tile come on the way, one line after the other: few activation
      // rows are bound by memory.
      unroll<(W * 16 * kBytes + 63) / 64>([&](auto line) COX_INLINE_LAMBDA {
        __builtin_prefetch(weights + W * w_stride + i * W * kBytes + 64 * line, 0, 2);
      });
      F values[W];
      unroll<W>([&](auto a) COX_INLINE_LAMBDA {
        const uint8_t* at = weights + a * w_stride + i * kBytes;
        values[a] = L::template load_weight<T>(at);
      });
      unroll<X>([&](auto b) COX_INLINE_LAMBDA {
        const F act = L::load(rows + b * ldx + i);
        unroll<W>([&](auto a) COX_INLINE_LAMBDA {
          acc[b * W + a] = L::fma(act, values[a], acc[b * W + a]);
        });
      });
    }
    if (i < k) add_tail<W, X>(weights, rows, i, acc);
    float sums[W * X < 16 ? 16 : W * X];
    reduce<L, W * X>(acc, sums);
    for (int64_t b = 0; b < X; ++b) {
      for (int64_t a = 0; a < W; ++a) {
        const float sum = sums[b * W + a];
        out[(r + b) * ldo + n + a] = bias != nullptr ? sum + bias[n + a] : sum;
      }
    }
  }

  template <int W, int X>
  COX_INLINE void add_tail(const uint8_t* weights, const float* rows, int64_t i,
                           typename L::F (&acc)[W * X]) const {
    unroll<W>([&](auto a) COX_INLINE_LAMBDA {
      alignas(64) uint8_t last[16 * kBytes] = {};
      __builtin_memcpy(last, weights + a * w_stride + i * kBytes,
                       static_cast<size_t>((k - i) * kBytes));
      const typename L::F value = L::template load_weight<T>(last);
      unroll<X>([&](auto b) COX_INLINE_LAMBDA {
        const typename L::F act = L::load_partial(rows + b * ldx + i, k - i);
        acc[b * W + a] = L::fma(act, value, acc[b * W + a]);
      });
    });
  }

  template <int X>
  void columns(int64_t r, int64_t n0, int64_t n1) const {
    constexpr int kWide = X == 1 ? 4 : L::kTileWeights;
    int64_t n = n0;
    for (; n + kWide <= n1; n += kWide) tile<kWide, X>(n, r);
    for (; n < n1; ++n) tile<1, X>(n, r);
  }

  // All rows of one panel for the columns [n0, n1): weights outside, so that a tile's weight rows
  // stay in the first-level cache.
  void panel(int64_t r0, int64_t r1, int64_t n0, int64_t n1) const {
    constexpr int kRows = L::kTileRows;
    constexpr int kStep = L::kTileWeights;
    for (int64_t n = n0; n < n1; n += kStep) {
      const int64_t end = n + kStep < n1 ? n + kStep : n1;
      int64_t r = r0;
      for (; r + kRows <= r1; r += kRows) columns<kRows>(r, n, end);
      for (; r < r1; ++r) columns<1>(r, n, end);
    }
  }
};

template <class L, TensorType T>
void matmul_float_of(const FloatOperands<L, T>& operands, int64_t row_count, int64_t n0,
                     int64_t n1) {
  if (row_count == 1) return operands.template columns<1>(0, n0, n1);
  const int64_t row_size = (operands.k + 1) * static_cast<int64_t>(sizeof(float));
  const int64_t fitting = kPanelBytes / row_size / L::kTileRows * L::kTileRows;
  const int64_t step = fitting < L::kTileRows ? L::kTileRows : fitting;
  for (int64_t r = 0; r < row_count; r += step) {
    operands.panel(r, r + step < row_count ? r + step : row_count, n0, n1);
  }
}

template <class L>
void matmul_float(TensorType type, const void* w, size_t w_row_bytes, int64_t k, const float* x,
                  int64_t ldx, int64_t row_count, const float* bias, float* out, int64_t ldo,
                  int64_t n0, int64_t n1) {
  const uint8_t* base = static_cast<const uint8_t*>(w);
  const int64_t stride = static_cast<int64_t>(w_row_bytes);
  if (type == TensorType::kF32) {
    matmul_float_of<L, TensorType::kF32>({base, stride, x, ldx, k, bias, out, ldo}, row_count, n0,
                                         n1);
  } else if (type == TensorType::kF16) {
    matmul_float_of<L, TensorType::kF16>({base, stride, x, ldx, k, bias, out, ldo}, row_count, n0,
                                         n1);
  } else {
    matmul_float_of<L, TensorType::kBF16>({base, stride, x, ldx, k, bias, out, ldo}, row_count, n0,
                                          n1);
  }
}

}  // namespace coxswain::kernels::vector

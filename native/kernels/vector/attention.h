// Attention over one KV head's blocks for a tile of query rows. Orders of operations:
// scalar/attention.cc.
//
// Queries of a tile are numbered row by row, heads inside: their numbers of visible positions
// ascend. Per KV block: scores (several queries times 16 keys at once), softmax partial,
// weighted sum of V (several queries times several vectors of the head's width, over all keys),
// merge.
#pragma once
#include <cstdint>

#include "kernels/attention_shape.h"
#include "kernels/kernels.h"
#include "kernels/vector/elementwise.h"
#include "kernels/vector/float_matmul.h"
#include "kernels/vector/math.h"

namespace coxswain::kernels::vector {

template <class L, KvType T>
class AttentionTile {
  using F = typename L::F;
  static constexpr int64_t kBytes = T == KvType::kF32 ? 4 : 2;
  static constexpr TensorType kElement = T == KvType::kF32 ? TensorType::kF32 : TensorType::kF16;

 public:
  AttentionTile(const AttentionArgs& args, int64_t row0, int64_t rows)
      : args_(args),
        row0_(row0),
        queries_(rows * args.heads),
        dim_(args.head_dim),
        padded_((args.head_dim + 15) / 16 * 16) {
    scores_ = args.scratch;
    block_out_ = scores_ + queries_ * kKvBlockTokens;
    out_ = block_out_ + queries_ * padded_;
    max_ = out_ + queries_ * padded_;
    sum_ = max_ + queries_;
  }

  void run() {
    const int64_t visible = visible_to(queries_ - 1);
    for (int64_t first = 0; first < visible; first += kKvBlockTokens) run_block(first);
    for (int64_t i = 0; i < queries_; ++i) write_query(i);
  }

 private:
  const float* query(int64_t i) const {
    return args_.q + (row0_ + i / args_.heads) * args_.q_row_stride + i % args_.heads * dim_;
  }
  int64_t visible_to(int64_t i) const { return args_.pos0 + row0_ + i / args_.heads + 1; }
  // Positions of the block starting at `first` that query i sees.
  int64_t seen(int64_t i, int64_t first) const {
    const int64_t left = visible_to(i) - first;
    return left < 0 ? 0 : left > kKvBlockTokens ? kKvBlockTokens : left;
  }

  void run_block(int64_t first) {
    int64_t i0 = 0;
    while (seen(i0, first) == 0) ++i0;
    for_chunks<L::kKeyQueries>(i0, [&](auto count, int64_t i) COX_INLINE_LAMBDA {
      score_queries<decltype(count)::value>(i, first);
    });
    for (int64_t i = i0; i < queries_; ++i) soften(i, first);
    for_chunks<L::kValueQueries>(i0, [&](auto count, int64_t i) COX_INLINE_LAMBDA {
      weigh_queries<decltype(count)::value>(i, first);
    });
    if (first > 0) {
      for (int64_t i = i0; i < queries_; ++i) merge(i);
    }
  }

  // body(count, i) over the queries from i on, Most at a time, the remainder as one smaller chunk.
  template <int Most, class Body>
  COX_INLINE void for_chunks(int64_t i, Body body) const {
    for (; i + Most <= queries_; i += Most) body(std::integral_constant<int, Most>{}, i);
    const int64_t left = queries_ - i;
    if constexpr (Most > 3) {
      if (left == 3) body(std::integral_constant<int, 3>{}, i);
    }
    if constexpr (Most > 2) {
      if (left == 2) body(std::integral_constant<int, 2>{}, i);
    }
    if (left == 1) body(std::integral_constant<int, 1>{}, i);
  }

  // --- scores: a vector lane is a key. The 16 partial sums of a dot product (columns d % 16) are
  // vectors then, and their tree needs no shuffle; it is walked depth first, so that few of them
  // live at a time.
  template <int Q>
  void score_queries(int64_t i, int64_t first) {
    const uint8_t* keys = static_cast<const uint8_t*>(args_.k[first / kKvBlockTokens]);
    const int64_t count = seen(i + Q - 1, first);
    const float* q[Q];
    unroll<Q>([&](auto n) COX_INLINE_LAMBDA { q[n] = query(i + n); });
    for (int64_t j = 0; j < count; j += kKeyGroup) {
      F sums[Q];
      const uint8_t* at = keys + j * dim_ * kBytes;
      if (dim_ == 64) {
        add_lanes<Q, 64, 0, 1>(q, at, sums);
      } else if (dim_ == 128) {
        add_lanes<Q, 128, 0, 1>(q, at, sums);
      } else {
        add_lanes<Q, 0, 0, 1>(q, at, sums);
      }
      unroll<Q>([&](auto n) COX_INLINE_LAMBDA {
        L::store(scores_ + (i + n) * kKvBlockTokens + j, L::mul(sums[n], L::set1(args_.scale)));
      });
    }
  }

  // sums = the tree over columns d with d % Step == First % Step, which lie from `at` on; moves it
  // behind them. Dim: head_dim, or 0 for any.
  template <int Q, int Dim, int First, int Step>
  COX_INLINE void add_lanes(const float* const (&q)[Q], const uint8_t*& at, F (&sums)[Q]) const {
    if constexpr (Step == 16) {
      unroll<Q>([&](auto n) COX_INLINE_LAMBDA { sums[n] = L::zero(); });
      const auto add_column = [&](int64_t d) COX_INLINE_LAMBDA {
        const F key = L::template load_weight<kElement>(at);
        at += kKeyGroup * kBytes;
        unroll<Q>([&](auto n)
                      COX_INLINE_LAMBDA { sums[n] = L::fma(L::set1(q[n][d]), key, sums[n]); });
      };
      if constexpr (Dim != 0) {
        unroll<Dim / 16>([&](auto v) COX_INLINE_LAMBDA { add_column(First + 16 * v); });
      } else {
        for (int64_t d = First; d < dim_; d += 16) add_column(d);
      }
    } else {
      add_lanes<Q, Dim, First, 2 * Step>(q, at, sums);
      F others[Q];
      add_lanes<Q, Dim, First + Step, 2 * Step>(q, at, others);
      unroll<Q>([&](auto n) COX_INLINE_LAMBDA { sums[n] = L::add(sums[n], others[n]); });
    }
  }

  static COX_INLINE F load_tail(const uint8_t* bytes, int64_t count) {
    alignas(64) uint8_t last[16 * kBytes] = {};
    __builtin_memcpy(last, bytes, static_cast<size_t>(count * kBytes));
    return L::template load_weight<kElement>(last);
  }

  // --- softmax partial: the first block's goes straight into the running state
  // -----------------------
  void soften(int64_t i, int64_t first) {
    float* scores = scores_ + i * kKvBlockTokens;
    const int64_t count = seen(i, first);
    const float best = max_of<L>(scores, count);
    F sums = L::zero();
    int64_t j = 0;
    for (; j + 16 <= count; j += 16) {
      const F e = exp_lanes<L>(L::sub(L::load(scores + j), L::set1(best)));
      L::store(scores + j, e);
      sums = L::add(sums, e);
    }
    if (j < count) {
      const F e = exp_lanes<L>(L::sub(L::load_partial(scores + j, count - j), L::set1(best)));
      L::store_partial(scores + j, e, count - j);
      sums = L::add(sums, L::select_first(e, L::zero(), count - j));
    }
    if (first == 0) {
      max_[i] = best;
      sum_[i] = L::tree(sums);
      return;
    }
    // The merge weights wait in the state's places: see merge().
    const float merged = best > max_[i] ? best : max_[i];
    alignas(64) float exponents[16] = {};
    exponents[0] = max_[i] - merged;
    exponents[1] = best - merged;
    alignas(64) float weights[16];
    L::store(weights, exp_lanes<L>(L::load(exponents)));
    old_weight(i) = weights[0];
    new_weight(i) = weights[1];
    sum_[i] = L::fma1(L::tree(sums), weights[1], sum_[i] * weights[0]);
    max_[i] = merged;
  }

  // Two spare floats a query: the scratch ends with them.
  float& old_weight(int64_t i) const { return sum_[queries_ + 2 * i]; }
  float& new_weight(int64_t i) const { return sum_[queries_ + 2 * i + 1]; }

  void merge(int64_t i) {
    const F keep = L::set1(old_weight(i));
    const F take = L::set1(new_weight(i));
    float* out = out_ + i * padded_;
    const float* fresh = block_out_ + i * padded_;
    for (int64_t d = 0; d < padded_; d += 16) {
      L::store(out + d, L::fma(L::load(fresh + d), take, L::mul(L::load(out + d), keep)));
    }
  }

  // --- weighted sum of V
  // ------------------------------------------------------------------------------
  template <int Q>
  void weigh_queries(int64_t i, int64_t first) {
    int64_t d = 0;
    constexpr int kVectors = Q == 1 ? 4 : L::kValueVectors;
    for (; d + 16 * kVectors <= dim_; d += 16 * kVectors) weigh<Q, kVectors>(i, first, d);
    for (; d + 16 <= dim_; d += 16) weigh<Q, 1>(i, first, d);
    if (d < dim_) weigh<Q, 0>(i, first, d);
  }

  // V vectors from column d on; V = 0 stands for the partial last vector.
  template <int Q, int V>
  COX_INLINE void weigh(int64_t i, int64_t first, int64_t d) {
    constexpr int kVectors = V == 0 ? 1 : V;
    F acc[Q * kVectors];
    unroll<Q * kVectors>([&](auto n) COX_INLINE_LAMBDA { acc[n] = L::zero(); });
    const uint8_t* values = static_cast<const uint8_t*>(args_.v[first / kKvBlockTokens]);
    values += d * kBytes;
    const float* weights = scores_ + i * kKvBlockTokens;
    const auto load = [&](int64_t j, int64_t v) COX_INLINE_LAMBDA {
      const uint8_t* at = values + (j * dim_ + 16 * v) * kBytes;
      if constexpr (V == 0) {
        return load_tail(at, dim_ - d);
      } else {
        return L::template load_weight<kElement>(at);
      }
    };
    // The positions that all Q queries see, then what is left of each.
    const int64_t common = seen(i, first);
    for (int64_t j = 0; j < common; ++j) {
      F value[kVectors];
      unroll<kVectors>([&](auto v) COX_INLINE_LAMBDA { value[v] = load(j, v); });
      unroll<Q>([&](auto n) COX_INLINE_LAMBDA {
        const F weight = L::set1(weights[n * kKvBlockTokens + j]);
        unroll<kVectors>([&](auto v) COX_INLINE_LAMBDA {
          acc[n * kVectors + v] = L::fma(weight, value[v], acc[n * kVectors + v]);
        });
      });
    }
    unroll<Q>([&](auto n) COX_INLINE_LAMBDA {
      const int64_t count = n == 0 ? common : seen(i + n, first);
      for (int64_t j = common; j < count; ++j) {
        const F weight = L::set1(weights[n * kKvBlockTokens + j]);
        unroll<kVectors>([&](auto v) COX_INLINE_LAMBDA {
          acc[n * kVectors + v] = L::fma(weight, load(j, v), acc[n * kVectors + v]);
        });
      }
      float* target = (first == 0 ? out_ : block_out_) + (i + n) * padded_ + d;
      unroll<kVectors>([&](auto v)
                           COX_INLINE_LAMBDA { L::store(target + 16 * v, acc[n * kVectors + v]); });
    });
  }

  void write_query(int64_t i) const {
    const F inverse = L::set1(1.0f / sum_[i]);
    float* target =
        args_.out + (row0_ + i / args_.heads) * args_.out_row_stride + i % args_.heads * dim_;
    const float* out = out_ + i * padded_;
    for (int64_t d = 0; d < dim_; d += 16) {
      const int64_t count = dim_ - d < 16 ? dim_ - d : 16;
      L::store_partial(target + d, L::mul(L::load(out + d), inverse), count);
    }
  }

  const AttentionArgs& args_;
  int64_t row0_;
  int64_t queries_;
  int64_t dim_;
  int64_t padded_;
  float* scores_;
  float* block_out_;
  float* out_;
  float* max_;
  float* sum_;
};

template <class L>
void attention(const AttentionArgs& args) {
  const int64_t tile = attention_tile_rows(args.heads);
  for (int64_t r = 0; r < args.row_count; r += tile) {
    const int64_t rows = args.row_count - r < tile ? args.row_count - r : tile;
    if (args.type == KvType::kF16) {
      AttentionTile<L, KvType::kF16>(args, r, rows).run();
    } else {
      AttentionTile<L, KvType::kF32>(args, r, rows).run();
    }
  }
}

}  // namespace coxswain::kernels::vector

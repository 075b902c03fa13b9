// Block-quantised weights times int8 activations over the packed layout of ../layout.h.
//
// One vector lane is one output row: the int32 sum of a block arises lane by lane from byte dot
// products with broadcast activations, so no reduction across lanes is needed. A set O whose
// vectors hold fewer than 16 rows goes over a group several times (it is in the first-level cache
// by then). A tile of R activation rows unpacks each block's codes once.
//
// Without chunks an output is one chain over all blocks; with them a8_rows adds the chains in f64.
//
// O offers: F, I, W (floats, int32 sums, code bytes), kRows, kMaxTile, kSignedCodes (codes of
// offset 128 are made signed, so nothing is taken back), field, join, lookup, dot, widen, widen_add
// and narrow (lanes to doubles in memory and back), and the conversions used below.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/layout.h"
#include "kernels/vector/unroll.h"

namespace coxswain::kernels::vector {

constexpr int log2_of(int value) {
  int log = 0;
  while ((1 << log) < value) ++log;
  return log;
}

// Code bytes of columns 16*Half .. 16*Half + 15, four columns a register. O::field<shift, bits>
// takes that field of each byte; O::join(low, high) puts bits of both together.
template <class O, TensorType T, int Half>
COX_INLINE void unpack(const uint8_t* codes, typename O::W (&w)[4]) {
  constexpr PackLayout kLayout = layout_of(T);
  constexpr int kLow = low_bits(kLayout);
  constexpr int kHigh = high_bits(kLayout);
  unroll<4>([&](auto v) COX_INLINE_LAMBDA {
    constexpr int kColumn = 16 * Half + 4 * decltype(v)::value;
    typename O::W code = O::template field<field_shift(kLow, kColumn), kLow, 0>(
        O::load_codes(codes + 64 * field_line(kLow, kColumn)));
    if constexpr (kHigh > 0) {
      const uint8_t* plane = codes + 64 * kLow;
      code = O::join(code, O::template field<field_shift(kHigh, kColumn), kHigh, kLow>(
                               O::load_codes(plane + 64 * field_line(kHigh, kColumn))));
    }
    w[v] = O::template code_bytes<T>(code);
  });
}

// -offset * (sum of the activations): where the int32 sum of unsigned codes starts.
template <class O, TensorType T>
COX_INLINE typename O::I initial_sum(const uint8_t* act, int which) {
  constexpr int kOffset = layout_of(T).offset;
  if constexpr (kOffset == 0 || (kOffset == 128 && O::kSignedCodes)) {
    return O::zero_int();
  } else {
    return O::template shift_left<log2_of(kOffset)>(
        O::broadcast_int(act + offsetof(ActivationBlock, neg_sum) + 4 * which));
  }
}

// Scale record of one block for the lanes of one pass.
template <class O, TensorType T>
struct BlockScales {
  using F = typename O::F;
  static constexpr PackLayout kLayout = layout_of(T);
  F scale;
  F minimum;
  F sub[2];
  F sub_min[2];

  COX_INLINE explicit BlockScales(const uint8_t* meta, int64_t row) {
    if constexpr (kLayout.scale == ScaleKind::kHalf) {
      scale = O::halves(meta + 2 * row);
      if constexpr (kLayout.factor != 1.0f) scale = O::mul(scale, O::set1(kLayout.factor));
    } else {
      scale = O::e8m0(meta + row);
    }
    if constexpr (kLayout.min != MinKind::kNone) {
      minimum = O::halves(meta + min_offset(kLayout) + 2 * row);
    }
    unroll<kLayout.subs>([&](auto i) COX_INLINE_LAMBDA {
      const uint8_t* subs = meta + sub_offset(kLayout) + 16 * i + row;
      if constexpr (kLayout.min == MinKind::kScaledHalf) {
        O::nibbles(subs, sub[i], sub_min[i]);
      } else {
        sub[i] = O::signed_bytes(subs);
      }
    });
    if constexpr (kLayout.min == MinKind::kScaled) {
      minimum = O::neg(O::mul(minimum, O::unsigned_bytes(meta + submin_offset(kLayout) + row)));
    }
  }

  COX_INLINE F accumulate(F sum, const uint8_t* act, F acc) const {
    const F act_scale = O::broadcast(act + offsetof(ActivationBlock, scale));
    acc = O::fma(sum, O::mul(scale, act_scale), acc);
    if constexpr (kLayout.min == MinKind::kHalf || kLayout.min == MinKind::kScaled) {
      acc = O::fma(minimum, O::broadcast(act + offsetof(ActivationBlock, scaled_sum)), acc);
    } else if constexpr (kLayout.min == MinKind::kScaledHalf) {
      const uint8_t* sums = act + offsetof(ActivationBlock, neg_sum_f);
      const F second = O::fma(sub_min[1], O::broadcast(sums + 4), O::zero());
      const F weighted = O::fma(sub_min[0], O::broadcast(sums), second);
      acc = O::fma(weighted, O::mul(minimum, act_scale), acc);
    }
    return acc;
  }
};

// Walks the blocks of a group in the order in which they lie (layout.h).
template <TensorType T>
class BlockCursor {
  static constexpr PackLayout kLayout = layout_of(T);
  static constexpr int64_t kUnit = unit_blocks(kLayout);

 public:
  COX_INLINE BlockCursor(const uint8_t* group, int64_t blocks, int64_t b) : left_(blocks - b) {
    const BlockPlace place = block_place(kLayout, blocks, b);
    place_ = group + b * block_bytes(kLayout);
    codes_ = group + place.codes;
    meta_ = group + place.meta;
    in_unit_ = kUnit - b % kUnit;
  }
  COX_INLINE const uint8_t* codes() const { return codes_; }
  COX_INLINE const uint8_t* meta() const { return meta_; }
  // As far into the group as the blocks before fill.
  COX_INLINE const uint8_t* place() const { return place_; }
  COX_INLINE void next() {
    place_ += block_bytes(kLayout);
    if constexpr (kUnit == 1) {
      codes_ += block_bytes(kLayout);
      meta_ += block_bytes(kLayout);
      return;
    }
    codes_ += code_bytes(kLayout);
    meta_ += meta_bytes(kLayout);
    --left_;
    if (--in_unit_ > 0) return;
    // Behind its last record the next unit begins.
    codes_ = meta_;
    in_unit_ = kUnit;
    meta_ = codes_ + (left_ < kUnit ? left_ : kUnit) * code_bytes(kLayout);
  }

 private:
  const uint8_t* codes_;
  const uint8_t* meta_;
  const uint8_t* place_;
  int64_t left_, in_unit_;
};

// Few activation rows are bound by memory. A group is one ascending stream: beside one row the
// processor reads it ahead better than instructions could (they share the buffers of loads that
// miss); beside the streams of several rows it does not, and weights are asked for this far ahead.
inline constexpr int64_t kPrefetchBytes = 16 * 1024;
inline constexpr int kPrefetchRows = 2;

// acc[r] = sum over `count` blocks for activation rows acts + r*stride, lanes = rows `row`.. of the
// group.
template <class O, TensorType T, int R>
COX_INLINE void a8_tile(BlockCursor<T>& at, int64_t row, int64_t count, const uint8_t* acts,
                        int64_t stride, typename O::F (&acc)[R]) {
  using F = typename O::F;
  using I = typename O::I;
  constexpr PackLayout kLayout = layout_of(T);
  unroll<R>([&](auto r) COX_INLINE_LAMBDA { acc[r] = O::zero(); });
  for (int64_t b = 0; b < count; ++b) {
    const uint8_t* codes = at.codes() + 4 * row;
    if constexpr (R >= kPrefetchRows) {
      unroll<(block_bytes(kLayout) + 63) / 64>([&](auto i) COX_INLINE_LAMBDA {
        __builtin_prefetch(at.place() + kPrefetchBytes + 64 * i, 0, 2);
      });
    }
    const BlockScales<O, T> scales(at.meta(), row);
    I sums[R];
    F weighted[R];
    typename O::W w[4];
    unpack<O, T, 0>(codes, w);
    unroll<R>([&](auto r) COX_INLINE_LAMBDA {
      const uint8_t* act = acts + r * stride;
      sums[r] = O::template dot<T>(initial_sum<O, T>(act, kLayout.subs == 2 ? 0 : 2), w, act);
      if constexpr (kLayout.subs == 2) {
        weighted[r] = O::fma(O::to_float(sums[r]), scales.sub[0], O::zero());
        sums[r] = initial_sum<O, T>(act, 1);
      }
    });
    unpack<O, T, 1>(codes, w);
    unroll<R>([&](auto r) COX_INLINE_LAMBDA {
      const uint8_t* act = acts + r * stride;
      F sum = O::to_float(O::template dot<T>(sums[r], w, act + 16));
      if constexpr (kLayout.subs == 1) sum = O::fma(sum, scales.sub[0], O::zero());
      if constexpr (kLayout.subs == 2) sum = O::fma(sum, scales.sub[1], weighted[r]);
      acc[r] = scales.accumulate(sum, act, acc[r]);
    });
    at.next();
    acts += sizeof(ActivationBlock);
  }
}

struct A8Call {
  const uint8_t* packed;
  int64_t blocks;
  const uint8_t* acts;
  int64_t act_stride;
  A8Out out;
  int64_t chunk_blocks;  // all blocks where there are no chunks
};

// The first `count` of these lanes, plus the bias, into out[0..count).
template <class O>
COX_INLINE void store_lanes(typename O::F acc, const float* bias, float* out, int64_t count) {
  if (count >= O::kRows) {
    if (bias != nullptr) acc = O::add(acc, O::load(bias));
    O::store(out, acc);
    return;
  }
  alignas(64) float lanes[O::kRows];
  O::store(lanes, acc);
  for (int64_t j = 0; j < count; ++j) out[j] = bias != nullptr ? lanes[j] + bias[j] : lanes[j];
}

template <class O, TensorType T, int R>
void a8_rows(const A8Call& call, const uint8_t* group, int64_t r, int64_t n, int64_t count) {
  const uint8_t* acts = call.acts + r * call.act_stride;
  const float* bias = call.out.bias;
  for (int64_t row = 0; row < count; row += O::kRows) {
    const int64_t first = n + row;
    const int64_t lanes = count - row < O::kRows ? count - row : O::kRows;
    alignas(64) double sums[R][O::kRows];
    BlockCursor<T> at(group, call.blocks, 0);
    for (int64_t b = 0; b < call.blocks; b += call.chunk_blocks) {
      const int64_t left = call.blocks - b;
      typename O::F acc[R];
      a8_tile<O, T, R>(at, row, left < call.chunk_blocks ? left : call.chunk_blocks,
                       acts + b * static_cast<int64_t>(sizeof(ActivationBlock)), call.act_stride,
                       acc);
      if (call.out.chunk == 0) {
        unroll<R>([&](auto i) COX_INLINE_LAMBDA {
          store_lanes<O>(acc[i], bias != nullptr ? bias + first : nullptr,
                         call.out.sums + (r + i) * call.out.ld + first, lanes);
        });
        break;
      }
      unroll<R>([&](auto i) COX_INLINE_LAMBDA {
        if (b == 0) {
          O::widen(sums[i], acc[i]);
        } else {
          O::widen_add(sums[i], acc[i]);
        }
      });
    }
    if (call.out.chunk == 0) continue;
    for (int i = 0; i < R; ++i) {
      const int64_t place = (r + i) * call.out.ld + first;
      if (call.out.sums != nullptr) {
        store_lanes<O>(O::narrow(sums[i]), bias != nullptr ? bias + first : nullptr,
                       call.out.sums + place, lanes);
      } else {
        for (int64_t j = 0; j < lanes; ++j) call.out.partials[place + j] = sums[i][j];
      }
    }
  }
}

template <class O, TensorType T, int R>
COX_INLINE int64_t a8_tiles(const A8Call& call, const uint8_t* group, int64_t r, int64_t r1,
                            int64_t n, int64_t count) {
  for (; r + R <= r1; r += R) a8_rows<O, T, R>(call, group, r, n, count);
  return r;
}

inline constexpr int64_t kActPanelBytes = 256 * 1024;

template <class O, TensorType T>
void matmul_a8_of(const A8Call& call, int64_t row_count, int64_t n0, int64_t n1) {
  const int64_t fitting = kActPanelBytes / (call.act_stride + 1) / O::kMaxTile * O::kMaxTile;
  const int64_t step = fitting < O::kMaxTile ? O::kMaxTile : fitting;
  const int64_t stride = group_bytes(layout_of(T), call.blocks);
  for (int64_t r0 = 0; r0 < row_count; r0 += step) {
    const int64_t r1 = r0 + step < row_count ? r0 + step : row_count;
    for (int64_t n = n0; n < n1; n += kRowGroup) {
      const uint8_t* group = call.packed + n / kRowGroup * stride;
      const int64_t count = n1 - n < kRowGroup ? n1 - n : kRowGroup;
      int64_t r = r0;
      if constexpr (O::kMaxTile >= 8) r = a8_tiles<O, T, 8>(call, group, r, r1, n, count);
      if constexpr (O::kMaxTile >= 4) r = a8_tiles<O, T, 4>(call, group, r, r1, n, count);
      r = a8_tiles<O, T, 2>(call, group, r, r1, n, count);
      a8_tiles<O, T, 1>(call, group, r, r1, n, count);
    }
  }
}

template <class O>
void matmul_a8(TensorType type, const void* packed, int64_t n_total, int64_t k, const void* acts,
               int64_t row_count, const A8Out& out, int64_t n0, int64_t n1) {
  (void)n_total;
  const int64_t blocks = k / kActivationBlock;
  const A8Call call{static_cast<const uint8_t*>(packed),
                    blocks,
                    static_cast<const uint8_t*>(acts),
                    blocks * static_cast<int64_t>(sizeof(ActivationBlock)),
                    out,
                    out.chunk == 0 ? blocks : out.chunk / kActivationBlock};
  switch (type) {
#define COX_A8_CASE(name) \
  case TensorType::name:  \
    return matmul_a8_of<O, TensorType::name>(call, row_count, n0, n1);
    COX_A8_CASE(kQ4_0)
    COX_A8_CASE(kQ4_1)
    COX_A8_CASE(kQ5_0)
    COX_A8_CASE(kQ5_1)
    COX_A8_CASE(kQ8_0)
    COX_A8_CASE(kQ2_K)
    COX_A8_CASE(kQ3_K)
    COX_A8_CASE(kQ4_K)
    COX_A8_CASE(kQ5_K)
    COX_A8_CASE(kQ6_K)
    COX_A8_CASE(kIQ2_XXS)
    COX_A8_CASE(kIQ2_XS)
    COX_A8_CASE(kIQ2_S)
    COX_A8_CASE(kIQ3_XXS)
    COX_A8_CASE(kIQ3_S)
    COX_A8_CASE(kIQ4_NL)
    COX_A8_CASE(kIQ4_XS)
    COX_A8_CASE(kMXFP4)
#undef COX_A8_CASE
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
      break;
  }
}

}  // namespace coxswain::kernels::vector

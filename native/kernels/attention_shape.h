// How attention cuts its work and its scratch: the same for every instruction set.
#pragma once
#include <cstdint>

#include "kernels/kernels.h"

namespace coxswain::kernels {

// Query rows handled together, so that keys and values are read once for about 16 queries.
constexpr int64_t attention_tile_rows(int64_t heads) { return heads >= 16 ? 1 : 16 / heads; }
// Keys of a block: groups of 16 tokens; in a group, 16 elements (one a token) for each column, the
// columns in the order in which the tree of a dot product takes them: column lane by column lane
// (d % 16, in the order 0 8 4 12 2 10 ...), each ascending. Attention then reads one ascending
// stream.
constexpr int64_t key_lane(int64_t index) {  // the bits of 0..15 reversed
  return (index & 1) << 3 | (index & 2) << 1 | (index & 4) >> 1 | (index & 8) >> 3;
}
constexpr int64_t key_group_start(int64_t token, int64_t head_dim) {
  return token / kKeyGroup * head_dim * kKeyGroup;
}
constexpr int64_t padded_head_dim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

// Scratch of one thread for Q = tile rows * heads queries:
//   scores (Q, 256) · block output (Q, padded) · running output (Q, padded) · max (Q) · sum (Q) ·
//   merge weights (Q, 2)
constexpr int64_t attention_floats(int64_t queries, int64_t head_dim) {
  return queries * (kKvBlockTokens + 2 * padded_head_dim(head_dim) + 4);
}

}  // namespace coxswain::kernels

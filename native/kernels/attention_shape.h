// How attention cuts its work and its scratch: the same for every instruction set.
#pragma once
#include <cstdint>

#include "kernels/kernels.h"

namespace coxswain::kernels {

// Query rows handled together, so that keys and values are read once for about 16 queries.
constexpr int64_t attention_tile_rows(int64_t heads) { return heads >= 16 ? 1 : 16 / heads; }
// Element of a block's keys: column d of a token.
constexpr int64_t key_index(int64_t token, int64_t d, int64_t head_dim) {
  return (token / kKeyGroup * head_dim + d) * kKeyGroup + token % kKeyGroup;
}
constexpr int64_t padded_head_dim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

// Scratch of one thread for Q = tile rows * heads queries:
//   scores (Q, 256) · block output (Q, padded) · running output (Q, padded) · max (Q) · sum (Q) ·
//   merge weights (Q, 2)
constexpr int64_t attention_floats(int64_t queries, int64_t head_dim) {
  return queries * (kKvBlockTokens + 2 * padded_head_dim(head_dim) + 4);
}

}  // namespace coxswain::kernels

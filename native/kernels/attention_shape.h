// How attention cuts its work and its scratch: the same for every instruction set.
#pragma once
#include <cstdint>

#include "kernels/kernels.h"

namespace coxswain::kernels {

// Query rows handled together, so that a converted K or V row serves about 16 queries.
constexpr int64_t attention_tile_rows(int64_t heads) { return heads >= 16 ? 1 : 16 / heads; }
constexpr int64_t padded_head_dim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

// Scratch of one thread for Q = tile rows * heads queries:
//   scores (Q, 256) · block output (Q, padded) · running output (Q, padded) · max (Q) · sum (Q)
struct AttentionScratch {
  float* scores;
  float* block_out;
  float* out;
  float* max;
  float* sum;
};

constexpr int64_t attention_floats(int64_t queries, int64_t head_dim) {
  return queries * (kKvBlockTokens + 2 * padded_head_dim(head_dim) + 2);
}

inline AttentionScratch attention_scratch(float* base, int64_t queries, int64_t head_dim) {
  const int64_t padded = padded_head_dim(head_dim);
  float* block_out = base + queries * kKvBlockTokens;
  float* out = block_out + queries * padded;
  float* max = out + queries * padded;
  return {base, block_out, out, max, max + queries};
}

}  // namespace coxswain::kernels

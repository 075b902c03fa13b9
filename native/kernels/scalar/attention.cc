// Reference attention: per query, one partial (max, sum, output) for each KV block of 256
// positions, merged in ascending order. Positions after the query's own are skipped.
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "kernels/attention_shape.h"
#include "kernels/scalar/scalar.h"

namespace coxswain::kernels::scalar {
namespace {

float kv_at(KvType type, const void* block, int64_t index) {
  if (type == KvType::kF32) {
    float value = 0.0f;
    std::memcpy(&value, static_cast<const uint8_t*>(block) + 4 * index, 4);
    return value;
  }
  uint16_t half = 0;
  std::memcpy(&half, static_cast<const uint8_t*>(block) + 2 * index, 2);
  return f16_to_f32(half);
}

float key_dot(const AttentionArgs& args, const float* q, const void* k, int64_t j) {
  float lanes[16] = {};
  int64_t element = key_group_start(j, args.head_dim) + j % kKeyGroup;
  for (int64_t index = 0; index < 16; ++index) {
    const int64_t lane = key_lane(index);
    for (int64_t d = lane; d < args.head_dim; d += 16, element += kKeyGroup) {
      lanes[lane] = std::fma(q[d], kv_at(args.type, k, element), lanes[lane]);
    }
  }
  return lane_tree(lanes) * args.scale;
}

struct Scratch {
  float* scores;     // one block's
  float* block_out;  // one block's weighted sum
  float* out;        // running
  float* max;
  float* sum;
};

Scratch cut_scratch(const AttentionArgs& args) {
  const int64_t padded = padded_head_dim(args.head_dim);
  float* block_out = args.scratch + kKvBlockTokens;
  float* max = block_out + 2 * padded;
  return {args.scratch, block_out, block_out + padded, max, max + 1};
}

// Scores of `count` positions of one block become weights in place; returns (max, sum).
void softmax_partial(float* scores, int64_t count, float* max, float* sum) {
  max_sum_exp(scores, count, max, sum);
  for (int64_t j = 0; j < count; ++j) scores[j] = exact_exp(scores[j] - *max);
}

void merge(const Scratch& s, int64_t head_dim, float max, float sum) {
  const float best = max > *s.max ? max : *s.max;
  const float old_weight = exact_exp(*s.max - best);
  const float new_weight = exact_exp(max - best);
  *s.sum = std::fma(sum, new_weight, *s.sum * old_weight);
  for (int64_t d = 0; d < head_dim; ++d) {
    s.out[d] = std::fma(s.block_out[d], new_weight, s.out[d] * old_weight);
  }
  *s.max = best;
}

void attend_one(const AttentionArgs& args, const float* q, int64_t visible, float* out) {
  const Scratch s = cut_scratch(args);
  const int64_t dim = args.head_dim;
  for (int64_t first = 0; first < visible; first += kKvBlockTokens) {
    const int64_t block = first / kKvBlockTokens;
    const int64_t count = visible - first < kKvBlockTokens ? visible - first : kKvBlockTokens;
    for (int64_t j = 0; j < count; ++j) s.scores[j] = key_dot(args, q, args.k[block], j);
    float max = 0.0f;
    float sum = 0.0f;
    softmax_partial(s.scores, count, &max, &sum);
    for (int64_t d = 0; d < dim; ++d) {
      float acc = 0.0f;
      for (int64_t j = 0; j < count; ++j) {
        acc = std::fma(s.scores[j], kv_at(args.type, args.v[block], j * dim + d), acc);
      }
      s.block_out[d] = acc;
    }
    if (block == 0) {
      *s.max = max;
      *s.sum = sum;
      std::memcpy(s.out, s.block_out, static_cast<size_t>(dim) * sizeof(float));
    } else {
      merge(s, dim, max, sum);
    }
  }
  const float inverse = 1.0f / *s.sum;
  for (int64_t d = 0; d < dim; ++d) out[d] = s.out[d] * inverse;
}

}  // namespace

void attention(const AttentionArgs& args) {
  for (int64_t r = 0; r < args.row_count; ++r) {
    for (int64_t h = 0; h < args.heads; ++h) {
      attend_one(args, args.q + r * args.q_row_stride + h * args.head_dim, args.pos0 + r + 1,
                 args.out + r * args.out_row_stride + h * args.head_dim);
    }
  }
}

}  // namespace coxswain::kernels::scalar

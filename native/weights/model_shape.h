// The sizes of a dense transformer as its GGUF metadata states them, validated against the tensors.
// Families llama, qwen2, qwen3. MODEL_UNSUPPORTED names the architecture or the missing feature.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weights/gguf.h"

namespace coxswain::weights {

enum class RopeScaling { kNone, kLinear, kYarn };

struct ModelShape {
  std::string architecture;
  std::string name;
  int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context;
  int64_t n_rot;
  float rms_eps;
  bool tied_output;      // no output.weight: the embedding is the head
  bool qkv_bias;         // qwen2 (and llama files that carry them)
  bool qk_norm;          // qwen3
  bool rope_half_split;  // qwen*: pairs (i, i + n_rot/2)
  double rope_base;
  RopeScaling rope_scaling;
  double rope_factor, rope_attn_factor, rope_original_context, yarn_beta_fast, yarn_beta_slow,
      yarn_ext_factor, yarn_log_multiplier;
  float attention_scale;  // 1/sqrt(head_dim) unless the file says otherwise
};

ModelShape read_model_shape(const GgufFile& file);
// n_rot/2 angle factors: base^(-2i/n_rot) with scaling and rope_freqs.weight applied, and the
// magnitude M that multiplies cos and sin (1 without YaRN).
struct RopeTable {
  std::vector<double> frequency;
  double magnitude;
};
RopeTable make_rope_table(const ModelShape& shape, const GgufFile& file);

}  // namespace coxswain::weights

// Metadata -> ModelShape. The tensors are checked against it in model_tensors.cc.
#include "weights/model_shape.h"

#include <cmath>

#include "weights/gguf_cursor.h"
#include "weights/model_keys.h"
#include "weights/model_tensors.h"

namespace coxswain::weights {
namespace {

// The planner's cuts take time quadratic in these; no published model comes near.
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 1024;

void read_sizes(const ModelKeys& keys, ModelShape& shape) {
  shape.layers = keys.size("block_count");
  shape.hidden = keys.size("embedding_length");
  shape.ffn = keys.size("feed_forward_length");
  shape.context = keys.size("context_length");
  shape.heads = keys.size("attention.head_count");
  shape.kv_heads = keys.size_or("attention.head_count_kv", shape.heads);
  if (shape.layers > kMaxLayers || shape.heads > kMaxHeads) {
    model_unsupported(std::to_string(shape.layers) + " layers of " + std::to_string(shape.heads) +
                      " heads are more than this engine plans for (" + std::to_string(kMaxLayers) +
                      " and " + std::to_string(kMaxHeads) + ")");
  }
  if (shape.heads % shape.kv_heads != 0) {
    model_invalid(std::to_string(shape.heads) + " query heads cannot share " +
                  std::to_string(shape.kv_heads) + " key/value heads evenly");
  }
  if (!keys.has("attention.key_length") && shape.hidden % shape.heads != 0) {
    model_invalid("the head size is missing: " + quoted(keys.full("attention.key_length")) +
                  " is absent and " + std::to_string(shape.hidden) + " / " +
                  std::to_string(shape.heads) + " is no whole number");
  }
  shape.head_dim = keys.size_or("attention.key_length", shape.hidden / shape.heads);
  const int64_t value_dim = keys.size_or("attention.value_length", shape.head_dim);
  if (value_dim != shape.head_dim) {
    model_unsupported("values of " + std::to_string(value_dim) + " elements on keys of " +
                      std::to_string(shape.head_dim) + " are not supported");
  }
  shape.n_rot = keys.size_or("rope.dimension_count", shape.head_dim);
  if (shape.n_rot > shape.head_dim || shape.n_rot % 2 != 0) {
    model_invalid("key " + quoted(keys.full("rope.dimension_count")) + " is " +
                  std::to_string(shape.n_rot) + ", which is odd or more than the head size " +
                  std::to_string(shape.head_dim));
  }
}

RopeScaling read_scaling_type(const ModelKeys& keys) {
  // A factor without a type is a linear one: files older than the type key.
  const std::string type = keys.text_or("rope.scaling.type", "linear");
  if (type == "none") return RopeScaling::kNone;
  if (type == "linear") return RopeScaling::kLinear;
  if (type == "yarn") return RopeScaling::kYarn;
  model_unsupported("RoPE scaling of type " + quoted(type) +
                    " is not supported (none, linear and yarn are)");
}

void read_rope(const ModelKeys& keys, ModelShape& shape) {
  shape.rope_base = keys.number_or("rope.freq_base", 10000, 1.000001, 1e15);
  shape.rope_scaling = read_scaling_type(keys);
  const double old_factor = keys.number_or("rope.scale_linear", 1, 1e-6, 1e6);
  shape.rope_factor = keys.number_or("rope.scaling.factor", old_factor, 0, 1e6);
  if (shape.rope_factor == 0) shape.rope_factor = old_factor;  // 0 is written for "no scaling"
  if (shape.rope_factor < 1e-6) model_invalid("the RoPE scaling factor is too small");
  if (shape.rope_factor == 1 && shape.rope_scaling == RopeScaling::kLinear) {
    shape.rope_scaling = RopeScaling::kNone;
  }
  shape.rope_attn_factor = keys.number_or("rope.scaling.attn_factor", 1, 1e-6, 1e6);
  shape.rope_original_context = keys.number_or("rope.scaling.original_context_length",
                                               static_cast<double>(shape.context), 1, 1e12);
  // Files of these families are made for llama.cpp, which reads the rope.scaling.yarn_* keys in
  // other families only and takes its defaults here, whatever the file says.
  shape.yarn_ext_factor = 1;
  shape.yarn_beta_fast = 32;
  shape.yarn_beta_slow = 1;
  shape.yarn_log_multiplier = 0;
}

void refuse_other_features(const ModelKeys& keys, const ModelShape& shape) {
  if (keys.integer_or("expert_count", 0) > 0) {
    model_unsupported("mixture-of-experts models of architecture " + quoted(shape.architecture) +
                      " are not supported");
  }
  if (!keys.boolean_or("attention.causal", true) || keys.integer_or("pooling_type", 0) != 0) {
    model_unsupported("embedding models of architecture " + quoted(shape.architecture) +
                      " are not supported");
  }
}

}  // namespace

ModelShape read_model_shape(const GgufFile& file) {
  ModelShape shape{};
  shape.architecture = file.string("general.architecture");
  const bool qwen = shape.architecture == "qwen2" || shape.architecture == "qwen3";
  if (shape.architecture != "llama" && !qwen) {
    model_unsupported("architecture " + quoted(shape.architecture) +
                      " is not supported (llama, qwen2 and qwen3 are)");
  }
  const ModelKeys keys(file, shape.architecture);
  shape.name = file.string_or("general.name", "");
  read_sizes(keys, shape);
  read_rope(keys, shape);
  refuse_other_features(keys, shape);
  if (!keys.has("attention.layer_norm_rms_epsilon")) {
    model_invalid("key " + quoted(keys.full("attention.layer_norm_rms_epsilon")) + " is missing");
  }
  shape.rms_eps = static_cast<float>(keys.number_or("attention.layer_norm_rms_epsilon", 0, 0, 0.1));
  const double scale = keys.number_or("attention.scale", 0, 0, 1e6);
  shape.attention_scale =
      scale > 0 ? static_cast<float>(scale) : 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  shape.rope_half_split = qwen;
  shape.qk_norm = shape.architecture == "qwen3";
  // Every qwen2 layer has the three biases; of the others only llama files may carry them.
  shape.qkv_bias =
      shape.architecture == "qwen2" ||
      (shape.architecture == "llama" && file.find_tensor("blk.0.attn_q.bias") != nullptr);
  shape.tied_output = file.find_tensor("output.weight") == nullptr;
  shape.vocab = file.tensor("token_embd.weight").dims[1];
  check_model_tensors(file, shape);
  return shape;
}

}  // namespace coxswain::weights

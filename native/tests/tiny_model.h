// Small dense models in memory, of any sizes: what the shape, plan and fuzz tests read.
#pragma once
#include <string>
#include <vector>

#include "gguf_builder.h"

namespace coxswain::testing {

struct TinyModel {
  std::string architecture = "llama";
  int64_t layers = 2, hidden = 64, heads = 4, kv_heads = 2, head_dim = 16, ffn = 128, vocab = 96;
  TensorType type = TensorType::kF32;
  bool tied = true;
  bool bias = false;     // qwen2
  bool qk_norm = false;  // qwen3

  GgufBuilder keys() const {
    GgufBuilder b;
    const auto key = [&](const std::string& name) { return architecture + "." + name; };
    b.text("general.architecture", architecture).text("general.name", "tiny");
    b.u32(key("block_count"), static_cast<uint32_t>(layers));
    b.u32(key("embedding_length"), static_cast<uint32_t>(hidden));
    b.u32(key("feed_forward_length"), static_cast<uint32_t>(ffn));
    b.u32(key("context_length"), 4096);
    b.u32(key("attention.head_count"), static_cast<uint32_t>(heads));
    b.u32(key("attention.head_count_kv"), static_cast<uint32_t>(kv_heads));
    b.u32(key("attention.key_length"), static_cast<uint32_t>(head_dim));
    b.f32(key("attention.layer_norm_rms_epsilon"), 1e-5f);
    return b;
  }

  void layer_tensors(GgufBuilder& b, int64_t layer) const {
    const std::string p = "blk." + std::to_string(layer) + ".";
    const int64_t q = heads * head_dim;
    const int64_t kv = kv_heads * head_dim;
    b.tensor(p + "attn_norm.weight", {hidden}, TensorType::kF32);
    b.tensor(p + "attn_q.weight", {hidden, q}, type);
    b.tensor(p + "attn_k.weight", {hidden, kv}, type);
    b.tensor(p + "attn_v.weight", {hidden, kv}, type);
    if (bias) {
      b.tensor(p + "attn_q.bias", {q}, TensorType::kF32);
      b.tensor(p + "attn_k.bias", {kv}, TensorType::kF32);
      b.tensor(p + "attn_v.bias", {kv}, TensorType::kF32);
    }
    if (qk_norm) {
      b.tensor(p + "attn_q_norm.weight", {head_dim}, TensorType::kF32);
      b.tensor(p + "attn_k_norm.weight", {head_dim}, TensorType::kF32);
    }
    b.tensor(p + "attn_output.weight", {q, hidden}, type);
    b.tensor(p + "ffn_norm.weight", {hidden}, TensorType::kF32);
    b.tensor(p + "ffn_gate.weight", {hidden, ffn}, type);
    b.tensor(p + "ffn_up.weight", {hidden, ffn}, type);
    b.tensor(p + "ffn_down.weight", {ffn, hidden}, type);
  }

  void add_tensors(GgufBuilder& b) const {
    b.tensor("token_embd.weight", {hidden, vocab}, type);
    for (int64_t layer = 0; layer < layers; ++layer) layer_tensors(b, layer);
    b.tensor("output_norm.weight", {hidden}, TensorType::kF32);
    if (!tied) b.tensor("output.weight", {hidden, vocab}, type);
  }

  GgufBuilder builder() const {
    GgufBuilder b = keys();
    add_tensors(b);
    return b;
  }
};

}  // namespace coxswain::testing

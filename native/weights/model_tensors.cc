// The lists of tensors that the three families have, and the comparison of a file with them.
#include "weights/model_tensors.h"

#include <string>
#include <unordered_set>
#include <vector>

#include "weights/gguf_cursor.h"
#include "weights/model_keys.h"

namespace coxswain::weights {
namespace {

enum class Kind { kMatrix, kVector, kF32 };  // a vector is no block type: norms and biases

struct Expected {
  std::string name;
  std::vector<int64_t> dims;
  Kind kind;
};

std::vector<Expected> layer_tensors(const ModelShape& s, int64_t layer) {
  const std::string p = "blk." + std::to_string(layer) + ".";
  const int64_t q = s.heads * s.head_dim;
  const int64_t kv = s.kv_heads * s.head_dim;
  std::vector<Expected> list = {
      {p + "attn_norm.weight", {s.hidden}, Kind::kVector},
      {p + "attn_q.weight", {s.hidden, q}, Kind::kMatrix},
      {p + "attn_k.weight", {s.hidden, kv}, Kind::kMatrix},
      {p + "attn_v.weight", {s.hidden, kv}, Kind::kMatrix},
      {p + "attn_output.weight", {q, s.hidden}, Kind::kMatrix},
      {p + "ffn_norm.weight", {s.hidden}, Kind::kVector},
      {p + "ffn_gate.weight", {s.hidden, s.ffn}, Kind::kMatrix},
      {p + "ffn_up.weight", {s.hidden, s.ffn}, Kind::kMatrix},
      {p + "ffn_down.weight", {s.ffn, s.hidden}, Kind::kMatrix},
  };
  if (s.qkv_bias) {
    list.push_back({p + "attn_q.bias", {q}, Kind::kVector});
    list.push_back({p + "attn_k.bias", {kv}, Kind::kVector});
    list.push_back({p + "attn_v.bias", {kv}, Kind::kVector});
  }
  if (s.qk_norm) {
    list.push_back({p + "attn_q_norm.weight", {s.head_dim}, Kind::kVector});
    list.push_back({p + "attn_k_norm.weight", {s.head_dim}, Kind::kVector});
  }
  return list;
}

std::vector<Expected> outer_tensors(const GgufFile& file, const ModelShape& s) {
  std::vector<Expected> list = {
      {"token_embd.weight", {s.hidden, s.vocab}, Kind::kMatrix},
      {"output_norm.weight", {s.hidden}, Kind::kVector},
  };
  if (!s.tied_output) list.push_back({"output.weight", {s.hidden, s.vocab}, Kind::kMatrix});
  if (s.architecture == "llama" && file.find_tensor("rope_freqs.weight") != nullptr) {
    list.push_back({"rope_freqs.weight", {s.n_rot / 2}, Kind::kF32});
  }
  return list;
}

std::string dims_text(const int64_t* dims, size_t count) {
  std::string text = "{";
  for (size_t i = 0; i < count; ++i) text += (i > 0 ? ", " : "") + std::to_string(dims[i]);
  return text + "}";
}

void check_one(const GgufFile& file, const Expected& expected) {
  const TensorInfo& tensor = file.tensor(expected.name);
  // Trailing dimensions of 1 are the same tensor.
  bool same = true;
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    same = same && tensor.dims[i] == (i < expected.dims.size() ? expected.dims[i] : 1);
  }
  if (!same) {
    model_invalid("tensor " + quoted(tensor.name) + " has the shape " +
                  dims_text(tensor.dims.data(), static_cast<size_t>(tensor.dim_count)) +
                  ", but the metadata says " +
                  dims_text(expected.dims.data(), expected.dims.size()));
  }
  const bool fits = expected.kind == Kind::kMatrix ||
                    (expected.kind == Kind::kVector && !is_block_type(tensor.type)) ||
                    tensor.type == TensorType::kF32;
  if (!fits) {
    model_unsupported(
        "tensor " + quoted(tensor.name) + " has the type " +
        std::string(traits_of(tensor.type).name) +
        (expected.kind == Kind::kF32 ? ", which is not F32" : ", in which no norm or bias may be"));
  }
}

[[noreturn]] void refuse_extra(const std::string& name, const ModelShape& shape) {
  if (name.find("_exps.") != std::string::npos || name.find("ffn_gate_inp") != std::string::npos ||
      name.find("_shexp.") != std::string::npos) {
    model_unsupported("tensor " + quoted(name) + " belongs to a mixture of experts, which is not " +
                      "supported for architecture " + quoted(shape.architecture));
  }
  if (name.starts_with("rope_factors_")) {
    model_unsupported("tensor " + quoted(name) +
                      " asks for longrope scaling, which is not supported");
  }
  model_unsupported(
      "tensor " + quoted(name) + " is not part of a dense " + quoted(shape.architecture) +
      " model that this engine computes; leaving it out " + "would change the results");
}

void check_vocabulary(const GgufFile& file, const ModelShape& shape) {
  const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
  if (tokens == nullptr) return;
  const GgufArray* list = std::get_if<GgufArray>(tokens);
  if (list == nullptr) model_invalid("key \"tokenizer.ggml.tokens\" is not a list");
  if (static_cast<int64_t>(list->size()) != shape.vocab) {
    model_invalid("tensor \"token_embd.weight\" has " + std::to_string(shape.vocab) +
                  " rows, but the vocabulary has " + std::to_string(list->size()) + " tokens");
  }
}

}  // namespace

void check_model_tensors(const GgufFile& file, const ModelShape& shape) {
  if (shape.vocab > kMaxModelSize) model_invalid("the vocabulary is too large");
  std::unordered_set<std::string> known;
  const auto check_all = [&](const std::vector<Expected>& list) {
    for (const Expected& expected : list) {
      check_one(file, expected);
      known.insert(expected.name);
    }
  };
  check_all(outer_tensors(file, shape));
  for (const TensorInfo& tensor : file.tensors()) {
    // Experts are told first: their files lack the dense tensors, and "missing" would mislead.
    if (tensor.name.find("_exps.") != std::string::npos) refuse_extra(tensor.name, shape);
    if (tensor.name.find(".attn_qkv.") != std::string::npos) {
      model_unsupported("tensor " + quoted(tensor.name) +
                        " fuses query, key and value, which is not supported");
    }
  }
  for (int64_t layer = 0; layer < shape.layers; ++layer) check_all(layer_tensors(shape, layer));
  for (const TensorInfo& tensor : file.tensors()) {
    if (!known.contains(tensor.name)) refuse_extra(tensor.name, shape);
  }
  check_vocabulary(file, shape);
}

}  // namespace coxswain::weights

// read_model_shape and make_rope_table: good models of the three families, and a refusal for every
// way in which metadata and tensors can disagree.
#include <cmath>
#include <functional>
#include <memory>

#include "base/error.h"
#include "check.h"
#include "tiny_model.h"
#include "weights/model_shape.h"

using namespace coxswain;
using namespace coxswain::weights;
using coxswain::testing::GgufBuilder;
using coxswain::testing::TinyModel;

namespace {

struct Held {
  std::vector<std::byte> bytes;
  std::shared_ptr<const GgufFile> file;
  explicit Held(const GgufBuilder& builder)
      : bytes(builder.build()), file(GgufFile::parse(bytes, "tiny.gguf")) {}
};

bool near(double a, double b) { return std::fabs(a - b) <= 1e-12 * std::fabs(b); }

void families() {
  TinyModel model;
  const Held llama(model.builder());
  const ModelShape a = read_model_shape(*llama.file);
  CHECK(a.architecture == "llama" && a.layers == 2 && a.hidden == 64 && a.heads == 4);
  CHECK(a.kv_heads == 2 && a.head_dim == 16 && a.ffn == 128 && a.vocab == 96 && a.context == 4096);
  CHECK(a.tied_output && !a.qkv_bias && !a.qk_norm && !a.rope_half_split);
  CHECK(a.n_rot == 16 && a.rope_base == 10000 && a.rope_scaling == RopeScaling::kNone);
  CHECK(a.attention_scale == 0.25f && a.rms_eps == 1e-5f);

  TinyModel qwen2;
  qwen2.architecture = "qwen2";
  qwen2.bias = true;
  qwen2.tied = false;
  const Held second(qwen2.builder());
  const ModelShape b = read_model_shape(*second.file);
  CHECK(b.qkv_bias && b.rope_half_split && !b.tied_output);

  TinyModel qwen3;
  qwen3.architecture = "qwen3";
  qwen3.qk_norm = true;
  const Held third(qwen3.builder());
  const ModelShape c = read_model_shape(*third.file);
  CHECK(c.qk_norm && c.rope_half_split && !c.qkv_bias);

  TinyModel biased;  // llama files may carry the three biases
  biased.bias = true;
  const Held fourth(biased.builder());
  CHECK(read_model_shape(*fourth.file).qkv_bias);
}

// A model whose keys or tensors `change` edits.
bool refuses(const GgufBuilder& builder, const std::string& code, const std::string& text) {
  try {
    const Held held(builder);
    const ModelShape shape = read_model_shape(*held.file);
    make_rope_table(shape, *held.file);
  } catch (const EngineError& error) {
    if (error.code() == code && std::string(error.what()).find(text) != std::string::npos)
      return true;
    std::fprintf(stderr, "got %s: %s\n", error.code().c_str(), error.what());
    return false;
  }
  std::fprintf(stderr, "was accepted\n");
  return false;
}

void metadata_refusals() {
  TinyModel other;
  other.architecture = "mamba";
  CHECK(refuses(other.builder(), "MODEL_UNSUPPORTED", "\"mamba\""));
  CHECK(refuses(GgufBuilder(), "GGUF_INVALID", "general.architecture"));
  CHECK(refuses(GgufBuilder().text("general.architecture", "llama"), "GGUF_INVALID",
                "llama.block_count"));
  TinyModel groups;
  groups.kv_heads = 3;
  CHECK(refuses(groups.builder(), "GGUF_INVALID", "4 query heads cannot share 3"));
  const auto with = [](const std::function<void(GgufBuilder&)>& edit) {
    GgufBuilder builder = TinyModel().builder();
    edit(builder);
    return builder;
  };
  CHECK(refuses(with([](auto& b) { b.u32("llama.attention.value_length", 8); }),
                "MODEL_UNSUPPORTED", "values of 8"));
  CHECK(refuses(with([](auto& b) { b.u32("llama.rope.dimension_count", 7); }), "GGUF_INVALID",
                "odd or more"));
  CHECK(refuses(with([](auto& b) { b.u32("llama.rope.dimension_count", 18); }), "GGUF_INVALID",
                "odd or more"));
  CHECK(refuses(with([](auto& b) { b.u32("llama.expert_count", 8); }), "MODEL_UNSUPPORTED",
                "mixture-of-experts"));
  CHECK(refuses(with([](auto& b) { b.boolean("llama.attention.causal", 0); }), "MODEL_UNSUPPORTED",
                "embedding models"));
  CHECK(refuses(with([](auto& b) { b.text("llama.rope.scaling.type", "longrope"); }),
                "MODEL_UNSUPPORTED", "longrope"));
  CHECK(refuses(with([](auto& b) { b.f32("llama.rope.freq_base", 0.5f); }), "GGUF_INVALID",
                "rope.freq_base"));
  CHECK(refuses(with([](auto& b) { b.f32("llama.rope.freq_base", NAN); }), "GGUF_INVALID",
                "rope.freq_base"));
  CHECK(refuses(with([](auto& b) { b.f32("llama.rope.scaling.factor", -2.0f); }), "GGUF_INVALID",
                "scaling.factor"));
  CHECK(refuses(with([](auto& b) { b.texts("tokenizer.ggml.tokens", {"a", "b"}); }), "GGUF_INVALID",
                "2 tokens"));
  GgufBuilder huge;
  huge.text("general.architecture", "llama").u32("llama.block_count", 4'000'000'000);
  CHECK(refuses(huge, "GGUF_INVALID", "llama.block_count"));
  GgufBuilder none;
  none.text("general.architecture", "llama").u32("llama.block_count", 0);
  CHECK(refuses(none, "GGUF_INVALID", "llama.block_count"));
}

void tensor_refusals() {
  GgufBuilder missing = TinyModel().keys();
  missing.tensor("token_embd.weight", {64, 96}, TensorType::kF32);
  CHECK(refuses(missing, "GGUF_INVALID", "\"output_norm.weight\" is missing"));
  TinyModel fewer;
  GgufBuilder two_layers = TinyModel().keys();
  fewer.layers = 1;
  fewer.add_tensors(two_layers);
  CHECK(refuses(two_layers, "GGUF_INVALID", "\"blk.1.attn_norm.weight\" is missing"));
  GgufBuilder wrong_shape = TinyModel().keys();
  TinyModel wide;
  wide.ffn = 96;
  wide.add_tensors(wrong_shape);
  CHECK(refuses(wrong_shape, "GGUF_INVALID", "{64, 96}, but the metadata says {64, 128}"));
  const auto with_tensor = [](const char* name) {
    GgufBuilder builder = TinyModel().builder();
    builder.tensor(name, {64}, TensorType::kF32);
    return builder;
  };
  CHECK(
      refuses(with_tensor("blk.0.ffn_up_exps.weight"), "MODEL_UNSUPPORTED", "mixture of experts"));
  CHECK(
      refuses(with_tensor("blk.1.ffn_gate_inp.weight"), "MODEL_UNSUPPORTED", "mixture of experts"));
  CHECK(refuses(with_tensor("blk.1.attn_qkv.weight"), "MODEL_UNSUPPORTED", "fuses"));
  CHECK(refuses(with_tensor("blk.0.attn_output.bias"), "MODEL_UNSUPPORTED",
                "would change the results"));
  CHECK(refuses(with_tensor("blk.2.attn_norm.weight"), "MODEL_UNSUPPORTED", "blk.2"));
  CHECK(refuses(with_tensor("rope_factors_long.weight"), "MODEL_UNSUPPORTED", "longrope"));
  CHECK(refuses(with_tensor("rope_freqs.weight"), "GGUF_INVALID", "says {8}"));
  GgufBuilder half_biases = TinyModel().builder();
  half_biases.tensor("blk.0.attn_q.bias", {64}, TensorType::kF32);
  CHECK(refuses(half_biases, "GGUF_INVALID", "attn_k.bias"));
}

// --- RoPE
// ---------------------------------------------------------------------------------------------

RopeTable table_of(const GgufBuilder& builder) {
  const Held held(builder);
  return make_rope_table(read_model_shape(*held.file), *held.file);
}

void plain_and_linear_rope() {
  const RopeTable plain = table_of(TinyModel().builder());
  CHECK(plain.frequency.size() == 8 && plain.magnitude == 1);
  for (size_t i = 0; i < 8; ++i) {
    CHECK(near(plain.frequency[i], std::pow(10000.0, -static_cast<double>(i) / 8)));
  }
  // An older file: a factor without a type is linear.
  GgufBuilder linear = TinyModel().builder();
  linear.f32("llama.rope.scaling.factor", 4);
  GgufBuilder none = TinyModel().builder();
  none.f32("llama.rope.scaling.factor", 4).text("llama.rope.scaling.type", "none");
  const RopeTable scaled = table_of(linear);
  const RopeTable unscaled = table_of(none);
  for (size_t i = 0; i < 8; ++i) {
    CHECK(near(scaled.frequency[i], plain.frequency[i] / 4));
    CHECK(unscaled.frequency[i] == plain.frequency[i]);
  }
  GgufBuilder half = TinyModel().builder();
  half.u32("llama.rope.dimension_count", 8);
  CHECK(table_of(half).frequency.size() == 4);
}

void divisors() {
  GgufBuilder builder = TinyModel().builder();
  builder.tensor("rope_freqs.weight", {8}, TensorType::kF32);
  std::vector<std::byte> bytes = builder.build();
  // The builder puts the last tensor at the end.
  for (size_t i = 0; i < 8; ++i) {
    const float value = 1 + static_cast<float>(i);
    std::memcpy(bytes.data() + bytes.size() - 32 + 4 * i, &value, 4);
  }
  const auto file = GgufFile::parse(bytes, "tiny.gguf");
  const RopeTable table = make_rope_table(read_model_shape(*file), *file);
  for (size_t i = 0; i < 8; ++i) {
    const double plain = std::pow(10000.0, -static_cast<double>(i) / 8);
    CHECK(near(table.frequency[i], plain / static_cast<double>(i + 1)));
  }
  const float zero = 0;
  std::memcpy(bytes.data() + bytes.size() - 4, &zero, 4);
  const auto bad = GgufFile::parse(bytes, "tiny.gguf");
  bool refused = false;
  try {
    make_rope_table(read_model_shape(*bad), *bad);
  } catch (const EngineError& error) {
    refused = error.code() == "GGUF_INVALID";
  }
  CHECK(refused);
}

// The formula of the YaRN paper, in the C library's arithmetic.
void yarn() {
  GgufBuilder builder = TinyModel().builder();
  builder.text("llama.rope.scaling.type", "yarn")
      .f32("llama.rope.scaling.factor", 8)
      .u32("llama.rope.scaling.original_context_length", 512);
  const RopeTable table = table_of(builder);
  const double n = 16;
  const double pi = std::acos(-1.0);
  const auto pair_of = [&](double turns) {
    return n * std::log(512 / (2 * pi * turns)) / (2 * std::log(10000.0));
  };
  const double low = std::max(0.0, std::floor(pair_of(32)));
  const double high = std::min(n - 1, std::ceil(pair_of(1)));
  CHECK(low < high);
  for (size_t i = 0; i < 8; ++i) {
    const double theta = std::pow(10000.0, -static_cast<double>(i) / 8);
    const double y = (static_cast<double>(i) - low) / std::max(0.001, high - low);
    const double keep = 1 - std::min(1.0, std::max(0.0, y));
    CHECK(near(table.frequency[i], theta / 8 * (1 - keep) + theta * keep));
  }
  CHECK(near(table.frequency[0], 1));                                // fast pairs stay
  CHECK(near(table.frequency[7], std::pow(10000.0, -7.0 / 8) / 8));  // slow pairs are stretched
  CHECK(near(table.magnitude, 1 + 0.1 * std::log(8.0)));
  // As in llama.cpp, the keys of other families change nothing here.
  builder.f32("llama.rope.scaling.yarn_log_multiplier", 0.1f)
      .f32("llama.rope.scaling.yarn_ext_factor", 0.5f)
      .f32("llama.rope.scaling.yarn_attn_factor", 1.3f)
      .f32("llama.rope.scaling.yarn_beta_fast", 8)
      .f32("llama.rope.scaling.yarn_beta_slow", 2);
  CHECK(table_of(builder).frequency == table.frequency);
  CHECK(near(table_of(builder).magnitude, table.magnitude));
  builder.f32("llama.rope.scaling.attn_factor", 1.5f);
  CHECK(near(table_of(builder).magnitude, 1.5 * table.magnitude));
  const Held model(builder);
  ModelShape shape = read_model_shape(*model.file);
  shape.rope_attn_factor = 1;
  shape.yarn_log_multiplier = 0.1;  // of all dimensions: it takes the magnitude back
  CHECK(near(make_rope_table(shape, *model.file).magnitude, 1));
}

}  // namespace

int main() {
  families();
  metadata_refusals();
  tensor_refusals();
  plain_and_linear_rope();
  divisors();
  yarn();
  return coxswain::testing::finish("weights_shape_test");
}

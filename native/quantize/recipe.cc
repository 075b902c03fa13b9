// The mixture's layers and the fallbacks are the usual ones of files named Q4_K_M: the first and
// the last eighth of the layers, and every third between, get more bits in ffn_down and attn_v.
#include "quantize/recipe.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "weights/gguf_cursor.h"

namespace coxswain::quantize {
namespace {

using weights::TensorInfo;

// The number in "blk.N."; -1 elsewhere.
int64_t block_of(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return -1;
  int64_t number = -1;
  for (const char c : name.substr(kPrefix.size())) {
    if (c == '.') return number;
    if (c < '0' || c > '9' || number > 1'000'000) return -1;
    number = (number < 0 ? 0 : number) * 10 + (c - '0');
  }
  return -1;
}

bool contains_any(std::string_view name, const auto& parts) {
  return std::any_of(parts.begin(), parts.end(), [name](std::string_view part) {
    return name.find(part) != std::string_view::npos;
  });
}

bool is_norm(std::string_view name) {
  return name.find("_norm.") != std::string_view::npos ||
         name.find("norm.weight") != std::string_view::npos;
}

// Small, and read by code that expects their type or their accuracy.
bool is_left_alone(std::string_view name) {
  constexpr std::array<std::string_view, 8> kParts{"ffn_gate_inp",  "ssm_conv1d",  "shortconv.conv",
                                                   "position_embd", "token_types", "rope_freqs",
                                                   "time_mix_",     "attn_rel_b"};
  return !name.ends_with(".weight") || contains_any(name, kParts);
}

bool needs_more_bits(std::string_view name, int64_t layers) {
  constexpr std::array<std::string_view, 5> kParts{".attn_v.", ".attn_v_b.", ".attn_kv_b.",
                                                   ".ffn_down.", ".ffn_down_exps."};
  const int64_t layer = block_of(name);
  if (layer < 0 || !contains_any(name, kParts)) return false;
  const int64_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

// The type of nearly as many bits whose blocks have 32 columns.
TensorType smaller_block(TensorType type) {
  switch (type) {
    case TensorType::kQ4_K:
      return TensorType::kQ5_0;
    case TensorType::kQ5_K:
      return TensorType::kQ5_1;
    case TensorType::kQ6_K:
      return TensorType::kQ8_0;
    default:
      return type;
  }
}

double bits_of(TensorType type) {
  const TensorTypeTraits& traits = traits_of(type);
  return 8.0 * static_cast<double>(traits.block_bytes) / static_cast<double>(traits.block_elements);
}

bool divides(TensorType type, int64_t columns) {
  return columns % traits_of(type).block_elements == 0;
}

TensorChoice fallback(TensorChoice wanted, int64_t columns) {
  if (divides(wanted.type, columns)) return wanted;
  const std::string row = std::to_string(columns) + " columns";
  const TensorType smaller = smaller_block(wanted.type);
  if (smaller != wanted.type && divides(smaller, columns)) {
    return {smaller, "256 does not divide " + row};
  }
  return {TensorType::kF16, "32 does not divide " + row};
}

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

}  // namespace

const std::vector<Scheme>& schemes() {
  static const std::vector<Scheme> kSchemes{
      {"F32", TensorType::kF32, false, 0},     {"F16", TensorType::kF16, false, 1},
      {"BF16", TensorType::kBF16, false, 32},  {"Q8_0", TensorType::kQ8_0, false, 7},
      {"Q6_K", TensorType::kQ6_K, false, 18},  {"Q5_K", TensorType::kQ5_K, false, 16},
      {"Q5_1", TensorType::kQ5_1, false, 9},   {"Q5_0", TensorType::kQ5_0, false, 8},
      {"Q4_K_M", TensorType::kQ4_K, true, 15}, {"Q4_K", TensorType::kQ4_K, false, 14},
      {"Q4_1", TensorType::kQ4_1, false, 3},   {"Q4_0", TensorType::kQ4_0, false, 2},
  };
  return kSchemes;
}

const Scheme& scheme_named(std::string_view name) {
  std::string wanted(name);
  std::transform(wanted.begin(), wanted.end(), wanted.begin(), upper);
  std::string known;
  for (const Scheme& scheme : schemes()) {
    if (scheme.name == wanted) return scheme;
    known += (known.empty() ? "" : ", ") + std::string(scheme.name);
  }
  throw EngineError("USAGE_INVALID", "TYPE " + weights::quoted(name) + " is none of " + known);
}

ModelFacts facts_of(const weights::GgufFile& file) {
  const std::string architecture = file.string_or("general.architecture", "");
  int64_t layers = file.integer_or(architecture + ".block_count", 0);
  for (const TensorInfo& tensor : file.tensors()) {
    layers = std::max(layers, block_of(tensor.name) + 1);
  }
  return {layers, file.find_tensor("output.weight") != nullptr};
}

TensorChoice choose_type(const TensorInfo& tensor, const Scheme& scheme, bool pure,
                         const ModelFacts& facts) {
  const std::string_view name = tensor.name;
  if (tensor.dim_count == 1) return {TensorType::kF32, "vector"};
  if (is_norm(name)) return {TensorType::kF32, "norm"};
  if (is_left_alone(name)) return {tensor.type, "left as it is"};
  TensorChoice choice{scheme.type, ""};
  const bool is_output = name == (facts.own_output ? "output.weight" : "token_embd.weight");
  if (!pure && is_output && bits_of(scheme.type) < bits_of(TensorType::kQ6_K)) {
    choice = {TensorType::kQ6_K, "output matrix"};
  } else if (!pure && scheme.mixture && needs_more_bits(name, facts.layers)) {
    choice = {TensorType::kQ6_K, "more bits"};
  }
  return fallback(choice, tensor.dims[0]);
}

}  // namespace coxswain::quantize

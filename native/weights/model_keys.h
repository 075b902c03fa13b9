// Look-ups of `<architecture>.*` keys with the checks that every size needs.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "weights/gguf.h"

namespace coxswain::weights {

// Above any published model; keeps products of two sizes far from overflow.
inline constexpr int64_t kMaxModelSize = int64_t{1} << 28;

class ModelKeys {
 public:
  ModelKeys(const GgufFile& file, std::string architecture)
      : file_(file), architecture_(std::move(architecture)) {}

  bool has(std::string_view key) const { return file_.find(full(key)) != nullptr; }
  // A whole number from 1 to kMaxModelSize. A per-layer array is accepted when all its elements are
  // equal; MODEL_UNSUPPORTED when they differ.
  int64_t size(std::string_view key) const;
  int64_t size_or(std::string_view key, int64_t fallback) const {
    return has(key) ? size(key) : fallback;
  }
  // A finite number inside [least, most].
  double number_or(std::string_view key, double fallback, double least, double most) const;
  std::string text_or(std::string_view key, std::string_view fallback) const {
    return file_.string_or(full(key), fallback);
  }
  int64_t integer_or(std::string_view key, int64_t fallback) const {
    return file_.integer_or(full(key), fallback);
  }
  bool boolean_or(std::string_view key, bool fallback) const {
    return file_.boolean_or(full(key), fallback);
  }
  std::string full(std::string_view key) const { return architecture_ + "." + std::string(key); }

 private:
  int64_t uniform_element(std::string_view key, const GgufArray& array) const;

  const GgufFile& file_;
  std::string architecture_;
};

[[noreturn]] void model_unsupported(const std::string& fact);
[[noreturn]] void model_invalid(const std::string& fact);

}  // namespace coxswain::weights

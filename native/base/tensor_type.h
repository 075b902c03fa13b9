// The element types of GGUF tensors: id as stored in files, block geometry, name.
// Source of ids and sizes: the GGUF type table.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace coxswain {

enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ2_XXS = 16,
  kIQ2_XS = 17,
  kIQ3_XXS = 18,
  kIQ4_NL = 20,
  kIQ3_S = 21,
  kIQ2_S = 22,
  kIQ4_XS = 23,
  kBF16 = 30,
  kMXFP4 = 39,
};

struct TensorTypeTraits {
  TensorType type;
  std::string_view name;   // as llama.cpp prints it: "F32", "Q4_K", "IQ2_XXS"
  int64_t block_elements;  // 1, 32 or 256
  size_t block_bytes;
};

// nullptr when the id is not one that this engine computes with.
const TensorTypeTraits* find_tensor_type(uint32_t id);
const TensorTypeTraits& traits_of(TensorType type);
// Bytes of one row of `elements` values; the caller has checked divisibility.
size_t row_bytes(TensorType type, int64_t elements);
inline bool is_block_type(TensorType type) { return traits_of(type).block_elements > 1; }

}  // namespace coxswain

// The table behind tensor_type.h.
#include "base/tensor_type.h"

#include <array>

#include "base/error.h"

namespace coxswain {
namespace {
constexpr std::array<TensorTypeTraits, 21> kTypes{{
    {TensorType::kF32, "F32", 1, 4},
    {TensorType::kF16, "F16", 1, 2},
    {TensorType::kBF16, "BF16", 1, 2},
    {TensorType::kQ4_0, "Q4_0", 32, 18},
    {TensorType::kQ4_1, "Q4_1", 32, 20},
    {TensorType::kQ5_0, "Q5_0", 32, 22},
    {TensorType::kQ5_1, "Q5_1", 32, 24},
    {TensorType::kQ8_0, "Q8_0", 32, 34},
    {TensorType::kQ2_K, "Q2_K", 256, 84},
    {TensorType::kQ3_K, "Q3_K", 256, 110},
    {TensorType::kQ4_K, "Q4_K", 256, 144},
    {TensorType::kQ5_K, "Q5_K", 256, 176},
    {TensorType::kQ6_K, "Q6_K", 256, 210},
    {TensorType::kIQ2_XXS, "IQ2_XXS", 256, 66},
    {TensorType::kIQ2_XS, "IQ2_XS", 256, 74},
    {TensorType::kIQ2_S, "IQ2_S", 256, 82},
    {TensorType::kIQ3_XXS, "IQ3_XXS", 256, 98},
    {TensorType::kIQ3_S, "IQ3_S", 256, 110},
    {TensorType::kIQ4_NL, "IQ4_NL", 32, 18},
    {TensorType::kIQ4_XS, "IQ4_XS", 256, 136},
    {TensorType::kMXFP4, "MXFP4", 32, 17},
}};
}  // namespace

const TensorTypeTraits* find_tensor_type(uint32_t id) {
  for (const TensorTypeTraits& traits : kTypes) {
    if (static_cast<uint32_t>(traits.type) == id) return &traits;
  }
  return nullptr;
}

const TensorTypeTraits& traits_of(TensorType type) {
  const TensorTypeTraits* traits = find_tensor_type(static_cast<uint32_t>(type));
  COX_CHECK(traits != nullptr, "a TensorType always has traits");
  return *traits;
}

size_t row_bytes(TensorType type, int64_t elements) {
  const TensorTypeTraits& traits = traits_of(type);
  return static_cast<size_t>(elements / traits.block_elements) * traits.block_bytes;
}

}  // namespace coxswain

// Sizes of packed blocks, type by type; native/tests/models_packed_bytes_test.cc holds them against
// kernels::packed_bytes, which this folder may not include.
#include "weights/shard_bytes.h"

#include "base/error.h"

namespace coxswain::weights {
namespace {

// Bytes that 32 columns of one row take when packed: the codes (4 bytes a bit), the scale, the
// minimum, the integer sub-scales and sub-minima.
int64_t packed_row_block_bytes(TensorType type) {
  switch (type) {
    case TensorType::kQ2_K:
      return 4 * 2 + 6;
    case TensorType::kIQ2_XXS:
      return 4 * 3 + 3;
    case TensorType::kQ3_K:
    case TensorType::kIQ2_XS:
    case TensorType::kIQ2_S:
      return 4 * 3 + 4;
    case TensorType::kMXFP4:
      return 4 * 4 + 1;
    case TensorType::kQ4_0:
    case TensorType::kIQ4_NL:
      return 4 * 4 + 2;
    case TensorType::kIQ3_XXS:
    case TensorType::kIQ3_S:
    case TensorType::kIQ4_XS:
      return 4 * 4 + 3;
    case TensorType::kQ4_1:
      return 4 * 4 + 4;
    case TensorType::kQ4_K:
      return 4 * 4 + 6;
    case TensorType::kQ5_0:
      return 4 * 5 + 2;
    case TensorType::kQ5_1:
      return 4 * 5 + 4;
    case TensorType::kQ5_K:
      return 4 * 5 + 6;
    case TensorType::kQ6_K:
      return 4 * 6 + 4;
    case TensorType::kQ8_0:
      return 4 * 8 + 2;
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
      break;
  }
  COX_CHECK(false, "only block types are packed");
}

}  // namespace

uint64_t held_bytes(const TensorInfo& tensor, int64_t rows, int64_t columns, bool exact) {
  if (rows <= 0 || columns <= 0) return 0;
  if (exact || !is_block_type(tensor.type)) {
    return static_cast<uint64_t>(read_bytes(tensor, rows, columns));
  }
  const int64_t groups = (rows + 15) / 16;
  const int64_t group_bytes = columns / 32 * 16 * packed_row_block_bytes(tensor.type);
  return static_cast<uint64_t>(groups * ((group_bytes + 63) / 64 * 64));
}

double read_bytes(const TensorInfo& tensor, int64_t rows, int64_t columns) {
  const TensorTypeTraits& traits = traits_of(tensor.type);
  return static_cast<double>(rows) * static_cast<double>(columns) *
         static_cast<double>(traits.block_bytes) / static_cast<double>(traits.block_elements);
}

}  // namespace coxswain::weights

// The planner's sizes of packed shards equal those that the kernels really use, for every block
// type.
#include "check.h"
#include "kernels/kernels.h"
#include "weights/shard_bytes.h"

using namespace coxswain;

int main() {
  int block_types = 0;
  for (uint32_t id = 0; id < 64; ++id) {
    const TensorTypeTraits* traits = find_tensor_type(id);
    if (traits == nullptr || traits->block_elements == 1) continue;
    ++block_types;
    weights::TensorInfo tensor{};
    tensor.type = traits->type;
    for (const int64_t rows : {1, 15, 16, 17, 320}) {
      for (const int64_t columns : {32, 64, 96, 256, 1504}) {
        CHECK(weights::held_bytes(tensor, rows, columns, false) ==
              kernels::packed_bytes(traits->type, rows, columns));
      }
    }
    CHECK(weights::held_bytes(tensor, 0, 32, false) == 0);
    // In the exact mode the rows run from the file.
    CHECK(weights::held_bytes(tensor, 3, 256, true) == 3 * row_bytes(traits->type, 256));
  }
  CHECK(block_types == 18);
  return coxswain::testing::finish("models_packed_bytes_test");
}

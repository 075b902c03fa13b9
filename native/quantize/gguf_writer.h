// The bytes of a GGUF v3 file before its tensor data, and where each tensor's data goes.
//
// Metadata is that of a model that was read, value for value in the same widths, but for the keys
// of a split model (the result is one file) and the keys that are set anew.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor_type.h"
#include "weights/gguf.h"

namespace coxswain::quantize {

struct NewTensor {
  std::string name;
  TensorType type;
  std::array<int64_t, 4> dims;
  int dim_count;
  uint64_t bytes;
};

struct FileLayout {
  std::vector<std::byte> head;     // up to the first tensor's data, padded
  std::vector<uint64_t> position;  // of each tensor in the file, a multiple of the alignment
  uint64_t file_bytes;             // with the padding after the last tensor
};

// `numbers`: u32 keys that replace those of `source` or follow them.
FileLayout lay_out(const weights::GgufFile& source,
                   const std::vector<std::pair<std::string, uint32_t>>& numbers,
                   const std::vector<NewTensor>& tensors);

}  // namespace coxswain::quantize

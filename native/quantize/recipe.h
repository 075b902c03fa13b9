// Which tensor becomes which type. Pure.
//
// A scheme is one of the target types, or the mixture Q4_K_M. Matrices named *.weight change;
// vectors and norms become F32; routers, convolutions and whatever is no weight stay as they are.
// Below 6 bits the output matrix (the embedding where it serves as one) is Q6_K unless `pure`. A
// row that 256 does not divide falls back to the nearest type of 32-column blocks, a row that 32
// does not divide to F16.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor_type.h"
#include "weights/gguf.h"

namespace coxswain::quantize {

struct Scheme {
  std::string_view name;  // as on the command line: "Q4_K_M"
  TensorType type;        // of most matrices
  bool mixture;           // more bits for the tensors that need them
  uint32_t file_type;     // general.file_type
};

const std::vector<Scheme>& schemes();
// Upper or lower case. USAGE_INVALID naming the known ones.
const Scheme& scheme_named(std::string_view name);

struct TensorChoice {
  TensorType type;
  std::string note;  // why it is not the scheme's main type; empty otherwise
};

// What the choice depends on beside the tensor.
struct ModelFacts {
  int64_t layers;   // block_count, or 1 + the largest block number
  bool own_output;  // output.weight exists, so the embedding is only looked up
};
ModelFacts facts_of(const weights::GgufFile& file);

TensorChoice choose_type(const weights::TensorInfo& tensor, const Scheme& scheme, bool pure,
                         const ModelFacts& facts);

}  // namespace coxswain::quantize

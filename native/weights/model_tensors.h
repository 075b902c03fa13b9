// Holds a file's tensors against its ModelShape: every needed tensor present, of the right shape
// and kind, and none that the forward pass would silently leave out.
#pragma once
#include "weights/gguf.h"
#include "weights/model_shape.h"

namespace coxswain::weights {

// GGUF_INVALID names the tensor and both shapes; MODEL_UNSUPPORTED names a tensor that belongs to a
// feature this engine lacks (experts, fused projections, other biases).
void check_model_tensors(const GgufFile& file, const ModelShape& shape);

}  // namespace coxswain::weights

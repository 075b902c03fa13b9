// A model file quantised into another: the plan (pure), and carrying it out on several threads.
//
// Memory is bounded by the threads: each holds one chunk of floats and its blocks. Source pages are
// given back as they are used. The result's bytes depend on model, scheme and `pure` only.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "quantize/gguf_writer.h"
#include "quantize/recipe.h"
#include "weights/gguf.h"

namespace coxswain::quantize {

struct TensorStep {
  NewTensor target;
  TensorType from;
  uint64_t from_bytes;
  std::string note;  // of the recipe
};

struct QuantizePlan {
  std::vector<TensorStep> steps;  // in the order of the source's tensors
  FileLayout layout;
  // A tensor that is in blocks already is put into others: its error is added to the new one's.
  bool requantizes;
};

QuantizePlan plan_quantization(const weights::GgufFile& file, const Scheme& scheme, bool pure);

struct QuantizeRun {
  std::string out;
  bool replace;  // an existing file
  int threads;   // 1 to 1024
  // Called now and then by any one thread with the elements done so far and those of all tensors.
  std::function<void(uint64_t done, uint64_t total)> on_progress;
  // Once true, the work ends soon with REQUEST_CANCELLED and leaves nothing behind.
  const std::atomic<bool>* cancelled;
};

// GGUF_INVALID naming a tensor with a value that is not finite, or too large for f16 scales.
void run_quantization(const weights::GgufFile& file, const QuantizePlan& plan,
                      const QuantizeRun& run);

}  // namespace coxswain::quantize

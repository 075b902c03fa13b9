// The dense decoder families: llama, qwen2, qwen3.
#pragma once
#include "models/items.h"
#include "weights/plan.h"

namespace coxswain::models {

// The lists of one rank of `plan`. `file` must outlive the result (views point into it).
Model build_dense(const weights::GgufFile& file, const weights::ShardPlan& plan, int rank);

}  // namespace coxswain::models

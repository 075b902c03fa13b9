// Does a plan fit this host's memory, and how large may a model be: the `memory` part of `cox
// plan`.
#pragma once
#include <cstdint>

#include "base/host_memory.h"
#include "weights/plan.h"

namespace coxswain::weights {

struct MemoryAdmission {
  uint64_t installed;  // bytes of this host
  uint64_t admitted;   // what ranks on this host may use together
  uint64_t needed;     // weights, one context of keys and values, and the processes of all ranks
  uint64_t largest_model;  // bytes of the largest model file, of this model's kind, that would fit
};

// Assumes that all ranks of the plan run on this host. A refused plan needs nothing.
MemoryAdmission admit(const ShardPlan& plan, uint64_t file_bytes, const HostMemory& host);

}  // namespace coxswain::weights

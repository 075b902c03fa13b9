// The allowances behind admission.h: what the system and a rank's process need besides the model.
#include "weights/admission.h"

#include <algorithm>

namespace coxswain::weights {
namespace {

constexpr uint64_t kLeastReserve = uint64_t{512} << 20;  // left to the rest of the system
constexpr uint64_t kRankProcess = uint64_t{128} << 20;   // a rank's run-time, buffers and stacks

}  // namespace

MemoryAdmission admit(const ShardPlan& plan, uint64_t file_bytes, const HostMemory& host) {
  MemoryAdmission memory{host.installed, 0, 0, 0};
  const uint64_t reserve = std::max(kLeastReserve, host.installed / 16);
  if (host.available > reserve) memory.admitted = host.available - reserve;
  uint64_t weight_bytes = 0;
  uint64_t fixed = 0;
  for (const RankShare& share : plan.ranks) {
    weight_bytes += share.weight_bytes;
    fixed += kRankProcess + share.kv_bytes_per_token * static_cast<uint64_t>(plan.topology.context);
  }
  memory.needed = weight_bytes + fixed;
  if (weight_bytes > 0 && memory.admitted > fixed) {
    const double scale =
        static_cast<double>(memory.admitted - fixed) / static_cast<double>(weight_bytes);
    memory.largest_model = static_cast<uint64_t>(static_cast<double>(file_bytes) * scale);
  }
  return memory;
}

}  // namespace coxswain::weights

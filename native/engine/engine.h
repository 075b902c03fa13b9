// One rank's engine: a shard of the model, its KV blocks, its executor thread.
// The addon (and native tests) talk to this class only. All methods may be called from one control
// thread; events arrive on the executor thread through `on_event`.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "engine/kv_pages.h"
#include "weights/plan.h"

namespace coxswain::engine {

struct EngineOptions {
  std::string path;
  weights::Topology topology;
  int rank = 0;
  int threads = 1;
  int64_t kv_blocks = 0;  // fixed for the life of the engine
  int64_t slots_max = 64;
  int64_t step_rows_max = 2048;
  bool share_cores = false;  // more engine threads than cores on this host: spin 20 us, not 1 ms
};

struct EngineInfo {
  std::string fingerprint, plan_hash, numerics_id, isa;
  uint64_t weight_bytes, kv_bytes, resident_bytes;
  int64_t context, vocab;
  double load_ms;
};

struct Progress {
  uint64_t epoch, step;
  uint32_t item;
  bool busy;
};

// kind: "result" (bytes = RESULT words of step_record.h) or "failed" (code, message; the engine
// then refuses steps until the next epoch).
struct EngineEvent {
  enum class Kind { kResult, kFailed } kind;
  uint64_t epoch, step;
  std::vector<std::byte> bytes;
  std::string code, message;
};

class Engine {
 public:
  // Loads, packs, reserves; blocks. EngineError on bad files, plans, memory.
  static std::unique_ptr<Engine> load(const EngineOptions& options,
                                      std::function<void(EngineEvent)> on_event);
  virtual ~Engine() = default;  // fences, joins
  virtual const EngineInfo& info() const = 0;
  // Starts an epoch over `plane`: all slots are dropped, steps count from first_step.
  virtual void begin_epoch(std::unique_ptr<comm::DataPlane> plane, uint64_t first_step) = 0;
  // Queues one record (bounded: STEP_INVALID when more than 64 wait). Never blocks.
  virtual void submit(std::vector<std::byte> record) = 0;
  // Leaves any wait within 50 ms, drops queued steps; returns when the executor is idle.
  virtual void fence() = 0;
  virtual std::atomic<bool>& fence_flag() = 0;
  // Pages of stored prefixes (kv_pages.h), on the caller's thread beside running steps; the caller
  // sees to it that no step uses the blocks. For `epoch` only: a fence ends them (EPOCH_FENCED),
  // and begin_epoch waits until they have left.
  virtual void save_pages(uint64_t epoch, PageFile& file, std::span<const uint32_t> blocks) = 0;
  virtual void load_pages(uint64_t epoch, const PageFile& file, const PageBox& box,
                          std::span<const uint32_t> blocks) = 0;
  virtual Progress progress() const = 0;
  virtual comm::DataPlane::Counters counters() const = 0;
};

}  // namespace coxswain::engine

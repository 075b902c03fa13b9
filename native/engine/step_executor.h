// Executes step records one after the other: verdicts it needs, plan, trunk, head, verdict, result.
// Owner of all state of an epoch: slots, verdicts, digests. Called on the executor thread only;
// knows nothing of queues and events (engine.cc).
#pragma once
#include <array>
#include <atomic>
#include <memory>

#include "comm/comm.h"
#include "engine/head_runner.h"
#include "engine/result_writer.h"
#include "engine/run_program.h"
#include "models/items.h"
#include "weights/plan.h"

namespace coxswain::engine {

struct ExecutorOptions {
  int rank;
  int64_t slots, blocks, rows, context;
  bool share_cores;
  kernels::Isa isa;
};

class StepExecutor {
 public:
  StepExecutor(const weights::ShardPlan& plan, const models::Model& model, const Program& program,
               KvBlocks& kv, ThreadPool& pool, const ExecutorOptions& options);

  // Drops all slots; steps count from first_step.
  void begin_epoch(std::unique_ptr<comm::DataPlane> plane, uint64_t first_step);
  void end_epoch() { plane_.reset(); }
  bool in_epoch() const { return plane_ != nullptr; }

  // The step's RESULT. EngineError on anything that ends the epoch.
  std::vector<std::byte> run(const StepRecord& record, std::span<const std::byte> bytes,
                             const std::atomic<bool>& fence, std::atomic<uint32_t>& item);
  const comm::DataPlane* plane() const { return plane_.get(); }

 private:
  void check_sequence(const StepRecord& record) const;
  void collect_verdicts(const StepRecord& record, const std::atomic<bool>& fence);
  void receive_verdict(const comm::Wait& wait);
  void run_outputs(const StepRecord& record, uint64_t record_digest, const std::atomic<bool>& fence,
                   ResultWriter& result);
  void publish_verdict(uint64_t step, const std::vector<OutputVerdict>& verdict,
                       const comm::Wait& wait);
  comm::Wait wait_for(const char* phase, const std::atomic<bool>& fence) const;
  int64_t patience_ns() const;
  // How long a step of so many rows will take, for patience_ns().
  void predict(int64_t rows);
  void measure(int64_t rows, int64_t busy_ns, int64_t whole_ns);
  struct RowTime;
  RowTime& row_time(int64_t rows);

  const weights::ShardPlan& plan_;
  const Program& program_;
  ThreadPool& pool_;
  ExecutorOptions options_;
  int stage_, leader_;
  std::vector<int> group_;  // ranks of this stage
  KvBlocks& kv_;
  ProgramRunner runner_;
  std::unique_ptr<HeadRunner> head_;  // last stage
  Slots slots_;
  StepPlanner planner_;
  Verdicts verdicts_;
  Batch batch_;
  std::vector<PlannedOutput> outputs_;
  std::vector<std::byte> frame_;
  ResultWriter result_;
  std::unique_ptr<comm::DataPlane> plane_;
  uint64_t next_step_ = 0;
  uint64_t running_digest_ = 0;
  uint64_t step_ = 0;
  // Nanoseconds a row: of this rank's own work, and of whole steps, in which it waits for slower
  // ones.
  struct RowTime {
    int64_t busy_ns = 0, whole_ns = 0;
    bool measured = false;
  };
  std::array<RowTime, 2> row_times_;      // of steps with few and with many rows
  std::array<int64_t, 128> recent_ns_{};  // predictions of the last steps (those in flight)
  static_assert(weights::kStagesMax + 2 <= 128);
};

}  // namespace coxswain::engine

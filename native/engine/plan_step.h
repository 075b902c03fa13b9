// From a step record to the rows of a batch: applies the slot ops, resolves runs that take their
// token from an earlier output, leaves out the rows that are skipped, appends tokens to their
// slots, and checks everything on the way. A violation is EngineError("STEP_INVALID") with a
// sentence.
//
// Deterministic: the same records and verdicts give the same batch on every rank.
#pragma once
#include <vector>

#include "engine/batch.h"
#include "engine/kv_blocks.h"
#include "engine/slots.h"
#include "engine/step_record.h"
#include "engine/verdicts.h"

namespace coxswain::engine {

struct PlannedOutput {
  Want want;
  uint32_t argument;
  uint32_t slot;
  int64_t position;  // of its row
  bool skipped;
};

struct StepLimits {
  int64_t rows, vocab;
};

class StepPlanner {
 public:
  explicit StepPlanner(const StepLimits& limits) : limits_(limits) {}
  // Fills `batch` and `outputs` (all outputs of the record, skipped ones included; the others stand
  // in batch.output_rows in the same order). Verdicts of every source must be there.
  void plan(const StepRecord& record, const Verdicts& verdicts, Slots& slots, KvBlocks& kv,
            Batch& batch, std::vector<PlannedOutput>& outputs);
  // Digest of ids, positions, slot lengths of the step that was planned last.
  uint64_t digest() const { return digest_; }

 private:
  struct Row {
    int64_t batch_row;  // -1: skipped
    uint32_t slot;
    int64_t position;
  };
  void apply_slot_ops(const StepRecord& record, Slots& slots);
  void add_run(const Run& run, const StepRecord& record, const Verdicts& verdicts, Slots& slots,
               Batch& batch);
  // The verdict that a run takes its token from.
  const OutputVerdict& source_of(const Run& run, const StepRecord& record,
                                 const Verdicts& verdicts) const;
  void add_outputs(const StepRecord& record, const Slots& slots, Batch& batch,
                   std::vector<PlannedOutput>& outputs) const;
  void check_ids(const std::vector<uint32_t>& ids, const char* what) const;

  StepLimits limits_;
  std::vector<Row> rows_;
  uint64_t digest_ = 0;
};

}  // namespace coxswain::engine

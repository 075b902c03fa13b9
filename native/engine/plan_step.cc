#include "engine/plan_step.h"

#include <string>

#include "base/error.h"
#include "engine/digest.h"

namespace coxswain::engine {
namespace {

constexpr int64_t kBlock = kernels::kKvBlockTokens;
constexpr uint32_t kNoTarget = 0xffffffff;

[[noreturn]] void invalid(const std::string& text) { throw EngineError("STEP_INVALID", text); }

}  // namespace

void StepPlanner::plan(const StepRecord& record, const Verdicts& verdicts, Slots& slots,
                       KvBlocks& kv, Batch& batch, std::vector<PlannedOutput>& outputs) {
  batch.ids.clear();
  batch.positions.clear();
  batch.kv_block.clear();
  batch.kv_row.clear();
  batch.runs.clear();
  batch.output_rows.clear();
  rows_.clear();
  outputs.clear();
  uint64_t rows = 0;
  for (const Run& run : record.runs) rows += run.n;
  if (rows > static_cast<uint64_t>(limits_.rows)) {
    invalid("a step of " + std::to_string(rows) + " rows exceeds the engine's " +
            std::to_string(limits_.rows));
  }
  if (record.outputs.size() > static_cast<size_t>(limits_.rows)) {
    invalid("a step of " + std::to_string(record.outputs.size()) +
            " outputs exceeds the engine's " + std::to_string(limits_.rows));
  }
  apply_slot_ops(record, slots);
  for (const Run& run : record.runs) add_run(run, record, verdicts, slots, batch);
  add_outputs(record, slots, batch, outputs);
  // The record is good: now the only change that is not bookkeeping. Copies come before all rows of
  // the step, and a block that is copied from is never written by the same step before it is
  // copied.
  for (const SlotOp& op : record.slot_ops) {
    if (const auto* copy = std::get_if<CopyBlock>(&op)) kv.copy(copy->from, copy->to, copy->rows);
  }
  Digest digest;
  digest.add(std::as_bytes(std::span(batch.ids)));
  digest.add(std::as_bytes(std::span(batch.positions)));
  for (const Run& run : record.runs) digest.add(slots.digest(run.slot));
  digest_ = digest.value();
}

void StepPlanner::apply_slot_ops(const StepRecord& record, Slots& slots) {
  for (const SlotOp& op : record.slot_ops) {
    if (const auto* create = std::get_if<CreateSlot>(&op)) check_ids(create->tokens, "create");
    slots.apply(op);
  }
}

void StepPlanner::check_ids(const std::vector<uint32_t>& ids, const char* what) const {
  for (const uint32_t id : ids) {
    if (id >= limits_.vocab) {
      invalid(std::string(what) + ": token id " + std::to_string(id) +
              " is not in the vocabulary of " + std::to_string(limits_.vocab));
    }
  }
}

const OutputVerdict& StepPlanner::source_of(const Run& run, const StepRecord& record,
                                            const Verdicts& verdicts) const {
  const std::string name =
      "output " + std::to_string(run.from_index) + " of step " + std::to_string(run.from_step);
  if (run.from_step >= record.step) invalid("run: " + name + " does not come before this step");
  const std::vector<OutputVerdict>* known = verdicts.find(run.from_step);
  if (known == nullptr || run.from_index >= known->size())
    invalid("run: " + name + " is not known");
  const OutputVerdict& verdict = (*known)[run.from_index];
  if (!verdict.token) invalid("run: " + name + " is not a token");
  return verdict;
}

void StepPlanner::add_run(const Run& run, const StepRecord& record, const Verdicts& verdicts,
                          Slots& slots, Batch& batch) {
  const Slot& slot = slots.live_slot(run.slot);
  uint32_t sampled = 0;
  if (run.from_output) {
    const OutputVerdict& source = source_of(run, record, verdicts);
    if (source.ends()) {
      rows_.push_back({-1, run.slot, run.pos0});
      return;
    }
    sampled = source.id;
    // It may have come in a frame, and becomes the index of a row.
    if (sampled >= limits_.vocab) {
      throw EngineError("LINK_PROTOCOL", "the verdict of step " + std::to_string(run.from_step) +
                                             " names token id " + std::to_string(sampled) +
                                             ", which is not in the vocabulary of " +
                                             std::to_string(limits_.vocab));
    }
  } else {
    check_ids(run.tokens, "run");
  }
  const int64_t row0 = batch.rows();
  for (uint32_t i = 0; i < run.n; ++i) {
    const int64_t position = static_cast<int64_t>(run.pos0) + i;
    const uint32_t id = run.from_output ? sampled : run.tokens[i];
    slots.append_token(run.slot, position, id);
    rows_.push_back({batch.rows(), run.slot, position});
    batch.ids.push_back(id);
    batch.positions.push_back(position);
    batch.kv_block.push_back(slot.blocks[static_cast<size_t>(position / kBlock)]);
    batch.kv_row.push_back(static_cast<uint32_t>(position % kBlock));
  }
  batch.runs.push_back({run.slot, row0, run.n, run.pos0, slot.blocks.data()});
}

void StepPlanner::add_outputs(const StepRecord& record, const Slots& slots, Batch& batch,
                              std::vector<PlannedOutput>& outputs) const {
  for (const Output& output : record.outputs) {
    if (output.row >= rows_.size()) {
      invalid("output: row " + std::to_string(output.row) + " of " + std::to_string(rows_.size()));
    }
    const Row& row = rows_[output.row];
    if (output.want == Want::kToken && !slots.live_slot(row.slot).sampler) {
      invalid("output: slot " + std::to_string(row.slot) + " has no sampler");
    }
    if (output.want == Want::kScore && output.argument != kNoTarget &&
        output.argument >= limits_.vocab) {
      invalid("output: target " + std::to_string(output.argument) + " is not in the vocabulary");
    }
    outputs.push_back({output.want, output.argument, row.slot, row.position, row.batch_row < 0});
    if (row.batch_row >= 0) batch.output_rows.push_back(row.batch_row);
  }
}

}  // namespace coxswain::engine

// The rows of one step as plain arrays: what every phase needs to know about a row.
// Filled by the step planner (plan_step.h), read by the program runner; storage is reserved at
// load.
#pragma once
#include <cstdint>
#include <vector>

namespace coxswain::engine {

// Consecutive rows of one slot.
struct BatchRun {
  uint32_t slot;
  int64_t row0, n, pos0;
  const uint32_t* blocks;  // the slot's table; valid for the step
};

// Rows that one attention call works on: a tile of a run against one KV head.
struct AttentionPiece {
  int32_t run;
  int32_t row0, rows;             // within the run
  int32_t kv_head, head0, heads;  // local
};

struct Batch {
  std::vector<uint32_t> ids;  // per row
  std::vector<int64_t> positions;
  std::vector<uint32_t> kv_block;  // block and row within it that the row's K and V go to
  std::vector<uint32_t> kv_row;
  std::vector<BatchRun> runs;
  std::vector<int64_t> output_rows;  // batch row of each wanted output, in output order
  std::vector<AttentionPiece> pieces;
  std::vector<float> cos, sin;  // (rows, n_rot / 2)

  int64_t rows() const { return static_cast<int64_t>(ids.size()); }
  int64_t outputs() const { return static_cast<int64_t>(output_rows.size()); }
};

}  // namespace coxswain::engine

// Runs phases on the thread pool. The only place where kernels meet threads.
//
// Which thread does which piece, and how work is cut, never changes a bit of a result: pieces split
// rows, outputs and heads, never a reduction.
#pragma once
#include <atomic>
#include <vector>

#include "comm/comm.h"
#include "engine/batch.h"
#include "engine/kv_blocks.h"
#include "engine/program.h"
#include "engine/thread_pool.h"

namespace coxswain::engine {

// How the syncs of a step wait.
struct StepWait {
  int64_t patience_ns;  // from the beginning of each wait
  int64_t spin_ns;
  uint64_t step;
};

class ProgramRunner {
 public:
  ProgramRunner(const models::Model& model, const Program& program, KvBlocks& kv, ThreadPool& pool,
                kernels::Isa isa, int64_t context);

  // Angles and attention pieces of the batch; call once before the trunk.
  void prepare(Batch& batch);
  // EPOCH_FENCED when `fence` is set between phases; whatever the data plane throws.
  void run_trunk(const Batch& batch, comm::DataPlane& plane, std::span<const int> group,
                 const StepWait& wait, const std::atomic<bool>& fence, std::atomic<uint32_t>& item);
  // The head over output rows [begin, begin + rows), rows <= kHeadRows.
  void run_head(const Batch& batch, int64_t begin, int64_t rows);

 private:
  struct Window {
    int64_t begin = 0, rows = 0;
  };
  int64_t row_count(const Phase& phase, const Batch& batch, const Window& window) const;
  void run_compute(const Phase& phase, const Batch& batch, const Window& window);
  void run_rows(const Phase& phase, const Batch& batch, const Window& window);
  void run_row_op(const RowOp& op, const Batch& batch, const Window& window, int64_t row) const;
  void store_kv(const RowOp& op, const Batch& batch, int64_t row) const;
  void run_matmul(const Phase& phase, const Window& window, int64_t rows);
  void run_matmul_piece(const Phase& phase, int64_t window_begin, int64_t row0, int64_t rows,
                        int64_t group0, int64_t group1, int thread);
  void matmul_range(const MatMulOp& op, int64_t window_begin, int64_t row0, int64_t rows,
                    int64_t n0, int64_t n1, int thread);
  struct FloatRows {
    const float* x;
    int64_t ld, rows;
  };
  struct FloatRange {  // outputs [n0, n1); data: of output n0 of the first row
    int64_t n0, n1;
    float* data;
    int64_t ld;
  };
  // Weights that are not packed.
  void multiply_floats(const MatMulOp& op, const FloatRows& in, const FloatRange& out, int thread);
  void run_attention(const Phase& phase, const Batch& batch);
  void run_attention_piece(const Phase& phase, const Batch& batch, const AttentionPiece& piece,
                           int thread);

  const models::Model& model_;
  const Program& program_;
  KvBlocks& kv_;
  ThreadPool& pool_;
  const kernels::Kernels& kernels_;
  struct ThreadScratch {
    std::vector<float> attention, dequantized, strip;
    std::vector<const void*> keys, values;
  };
  std::vector<ThreadScratch> scratch_;
};

}  // namespace coxswain::engine

// A model's lists compiled for this backend: runs of items become phases, and all memory is
// planned.
//
// A phase is work between two barriers:
//   rows       a chain of row-wise ops (norm, rope, store, add ...); any thread does any row
//   matmul     matrices that share one input (q|k|v, gate|up); gate|up: also silu(gate) * up
//   attention  pieces of (run, row tile, heads)
//   sync       all-reduce, send, receive
// An input of packed matrices is quantised once, by a row op at the end of the chain before.
// Buffers that never live at the same time share memory; addresses are fixed for the engine's life.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/weight_store.h"
#include "kernels/kernels.h"
#include "models/items.h"

namespace coxswain::engine {

// Where a buffer lies. Row r of a kOutput buffer that is read by a phase of the head is row
// window_begin + r of it: `windowed`.
struct Operand {
  float* data = nullptr;  // doubles when f64: partial sums
  int64_t width = 0;
  bool windowed = false;
  bool f64 = false;
  models::BufferId id = models::kNone;
};

// int8 rows of a buffer, made once for all packed matrices that read it.
struct QuantizedOperand {
  std::byte* data = nullptr;
  size_t row_bytes = 0;
  models::BufferId of = models::kNone;
};

enum class RowOpKind {
  kEmbed,
  kRmsNorm,
  kHeadNorm,
  kRope,
  kStoreKv,
  kSwiGlu,
  kAdd,
  kZero,
  kTake,
  kQuantize
};

struct RowOp {
  RowOpKind kind;
  Operand a{}, b{}, out{};
  const float* weight = nullptr;
  const Matrix* table = nullptr;
  QuantizedOperand quantized{};
  int64_t heads = 0, layer = 0;
};

struct MatMulOp {
  const Matrix* matrix;
  const float* bias;
  Operand in{}, out{};
  QuantizedOperand quantized{};
  int64_t chunk = 0;
};

enum class PhaseKind { kRows, kMatMul, kAttention, kAllReduce, kSend, kRecv };

struct Phase {
  PhaseKind kind;
  models::RowDomain rows;
  std::vector<RowOp> row_ops{};
  int64_t row_cost = 0;             // floats that one row touches
  std::vector<MatMulOp> matmuls{};  // one input
  bool swiglu = false;              // matmuls are gate, up: out = silu(gate) * up
  Operand activated{};
  Operand q{}, mixed{};  // attention
  Operand buffer{};      // syncs: what is sent or received, or the partials of an all-reduce
  Operand sum{};         // all-reduce
  int64_t layer = -1;    // attention: local; syncs: global
  const char* name = "";
  int peer = -1;
};

class Program {
 public:
  // `model` and `weights` must outlive the program.
  Program(const models::Model& model, const WeightStore& weights, int64_t step_rows_max);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const std::vector<Phase>& trunk() const { return trunk_; }  // embed and trunk
  const std::vector<Phase>& head() const { return head_; }
  const Operand& hidden_outputs() const { return hidden_outputs_; }
  const Operand& logits() const { return logits_; }

 private:
  friend class ProgramCompiler;
  std::vector<Phase> trunk_, head_;
  Operand hidden_outputs_, logits_;
  std::byte* arena_ = nullptr;
  uint64_t arena_bytes_ = 0;
};

}  // namespace coxswain::engine

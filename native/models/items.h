// A model as data: buffers, views of weights, and flat lists of items (ops and syncs).
//
// An item names every operand it reads or writes; communication is an item too, so it is visible in
// the model file and nowhere else. Lists are built once per (model, plan, rank); the engine plans
// their memory once and may replace runs of items by fused kernels that give the same bits.
// Per-step data (ids, positions, block tables, which rows are wanted) belongs to the engine's
// batch.
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "weights/gguf.h"
#include "weights/model_shape.h"

namespace coxswain::models {

// Which rows of a step a buffer has: every row, the rows whose logits are wanted, or a window of
// those (the head runs over at most kHeadRows of them at a time, since a row of logits is large).
enum class RowDomain { kAll, kOutput, kHead };
inline constexpr int64_t kHeadRows = 32;

using BufferId = int32_t;
using WeightId = int32_t;
using VectorId = int32_t;
inline constexpr int32_t kNone = -1;

struct Buffer {
  std::string name;
  int64_t width;  // elements a row
  RowDomain rows;
  bool f64;  // partial sums before an all-reduce; everything else is f32
};

// This rank's part of a matrix: rows [row_begin, row_begin + row_count), columns [k0, k0 + k).
// packed: repacked at load for int8 activations; otherwise computed from the mapped file.
struct WeightView {
  const weights::TensorInfo* tensor;
  int64_t row_begin, row_count;
  int64_t k0, k;
  bool packed;
};

// This rank's part of a vector (norm weight, bias), held as floats.
struct VectorView {
  const weights::TensorInfo* tensor;
  int64_t begin, count;
};

// --- ops ---------------------------------------------------------------------------------------
struct Embed {  // out = table[token id]; always read from the mapped file
  WeightId table;
  BufferId out;
};
struct RmsNorm {
  BufferId in;
  VectorId weight;
  BufferId out;
};
// out = weight * in (+ bias). chunk: columns of packed weights that are summed in f32, the chunks
// in f64 (kernels.h A8Out); 0 where no rank ever holds a part of the columns.
struct MatMul {
  BufferId in;
  WeightId weight;
  VectorId bias;
  BufferId out;
  int64_t chunk;
};
struct HeadNorm {  // RMS norm of each head of x, in place
  BufferId x;
  int64_t heads;
  VectorId weight;
};
struct Rope {  // in place, by the row's position
  BufferId x;
  int64_t heads;
};
struct StoreKv {  // the row's keys and values into its slot's KV block
  BufferId k, v;
  int64_t layer;  // local: 0 is this rank's first layer
};
struct Attention {
  BufferId q, out;
  int64_t layer;
};
struct SwiGlu {  // out = silu(gate) * up
  BufferId gate, up, out;
};
struct Add {  // x += y
  BufferId x, y;
};
struct Zero {  // the partial sum of a rank without heads or columns
  BufferId x;
};
struct TakeOutputs {  // keeps the rows whose logits are wanted
  BufferId in, out;
};

// --- syncs -------------------------------------------------------------------------------------
// `sum` becomes the partials of all ranks of this stage, added. Start and finish are adjacent
// today; what stands between them may overlap with the exchange.
struct AllReduceStart {
  BufferId partial, sum;
  int64_t layer;  // global, for messages
  const char* phase;
};
struct AllReduceFinish {
  BufferId sum;
};
// The declared boundary between two pipeline stages: the hidden rows.
struct SendBoundary {
  BufferId x;
  int peer;
};
struct RecvBoundary {
  BufferId x;
  int peer;
};

using Item =
    std::variant<Embed, RmsNorm, MatMul, HeadNorm, Rope, StoreKv, Attention, SwiGlu, Add, Zero,
                 TakeOutputs, AllReduceStart, AllReduceFinish, SendBoundary, RecvBoundary>;

// Query heads of this rank that share one of its KV heads.
struct HeadGroup {
  int64_t kv_head;     // local
  int64_t head_begin;  // local
  int64_t head_count;
};

struct Model {
  std::vector<Buffer> buffers;
  std::vector<WeightView> weights;
  std::vector<VectorView> vectors;
  std::vector<Item> embed;  // first stage
  std::vector<Item> trunk;  // every stage; starts or ends with the boundary
  std::vector<Item> head;   // last stage; run per window of kHeadRows output rows
  BufferId hidden = kNone;  // residual stream of all rows
  BufferId hidden_outputs =
      kNone;                // residual stream after the last layer, output rows (last stage)
  BufferId logits = kNone;  // this rank's vocabulary slice (last stage)
  // Attention geometry of this rank.
  int64_t layers = 0, heads = 0, kv_heads = 0, head_dim = 0, n_rot = 0;
  float attention_scale = 0, rms_eps = 0;
  bool rope_half_split = false;
  std::vector<HeadGroup> head_groups;
  weights::RopeTable rope;
};

}  // namespace coxswain::models

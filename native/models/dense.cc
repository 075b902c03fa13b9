// Dense decoders as lists. Per layer:
//   x += Wo attention(rope(q), rope(k), v)      q, k, v of rms_norm(x)
//   x += Wdown (silu(Wgate y) * Wup y)          y = rms_norm(x)
// llama: adjacent-pair rope, rope_freqs allowed; qwen2: biases on q, k, v; qwen3: RMS norm of each
// head of q and k before rope; qwen*: half-split rope. `tied_output`: the embedding is the head.
//
// Tensor parallel: q by query heads, k and v by the KV heads they need, Wo by the columns of this
// rank's heads, the FFN by columns; the partial sums meet in one all-reduce each, and every rank
// adds the same sum to its copy of the residual stream. One rank alone adds the same chunks of
// columns in f64, so a cut between chunks changes no bit. Biases sit before the split sums, so none
// counts twice. After the last layer's attention only the rows whose logits are wanted go on.
#include "models/dense.h"

#include <numeric>

#include "base/error.h"
#include "kernels/kernels.h"

namespace coxswain::models {
namespace {

using weights::ModelShape;
using weights::RankShare;

class DenseBuilder {
 public:
  DenseBuilder(const weights::GgufFile& file, const weights::ShardPlan& plan, int rank)
      : file_(file),
        plan_(plan),
        shape_(plan.shape),
        share_(plan.ranks.at(static_cast<size_t>(rank))) {}

  Model build() {
    set_geometry();
    model_.hidden = buffer("hidden", shape_.hidden);
    if (share_.embeds) {
      const WeightId table = matrix("token_embd.weight", 0, shape_.vocab, 0, shape_.hidden);
      model_.weights[static_cast<size_t>(table)].packed = false;  // single rows, from the map
      model_.embed.emplace_back(Embed{table, model_.hidden});
    } else {
      model_.trunk.emplace_back(RecvBoundary{model_.hidden, share_.rank - plan_.tp});
    }
    const bool last_stage = share_.stage == plan_.pp - 1;
    for (int64_t layer = share_.layer_begin; layer < share_.layer_end; ++layer) {
      add_layer(layer, last_stage && layer == share_.layer_end - 1);
    }
    if (last_stage) {
      add_head();
    } else {
      model_.trunk.emplace_back(SendBoundary{model_.hidden, share_.rank + plan_.tp});
    }
    return std::move(model_);
  }

 private:
  void set_geometry() {
    model_.layers = share_.layer_end - share_.layer_begin;
    model_.heads = share_.head_end - share_.head_begin;
    model_.kv_heads = share_.kv_head_end - share_.kv_head_begin;
    model_.head_dim = shape_.head_dim;
    model_.n_rot = shape_.n_rot;
    model_.attention_scale = shape_.attention_scale;
    model_.rms_eps = shape_.rms_eps;
    model_.rope_half_split = shape_.rope_half_split;
    model_.rope = weights::make_rope_table(shape_, file_);
    const int64_t group = shape_.heads / shape_.kv_heads;
    for (int64_t head = share_.head_begin; head < share_.head_end;) {
      const int64_t kv_head = head / group;
      const int64_t end = std::min(share_.head_end, (kv_head + 1) * group);
      model_.head_groups.push_back(
          {kv_head - share_.kv_head_begin, head - share_.head_begin, end - head});
      head = end;
    }
  }

  void add_layer(int64_t layer, bool last) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    add_attention(layer, block);
    BufferId x = model_.hidden;
    RowDomain rows = RowDomain::kAll;
    if (last) {
      rows = RowDomain::kOutput;
      x = buffer("hidden.outputs", shape_.hidden, rows);
      model_.hidden_outputs = x;
      model_.trunk.emplace_back(TakeOutputs{model_.hidden, x});
    }
    add_ffn(layer, block, x, rows);
  }

  void add_attention(int64_t layer, const std::string& block) {
    const int64_t dim = shape_.head_dim;
    const int64_t local = layer - share_.layer_begin;
    const BufferId partial = partial_buffer(block + "attn_partial", RowDomain::kAll);
    if (model_.heads == 0) {
      model_.trunk.emplace_back(Zero{partial});
    } else {
      const BufferId normed = buffer(block + "attn_normed", shape_.hidden);
      const BufferId q = buffer(block + "q", model_.heads * dim);
      const BufferId k = buffer(block + "k", model_.kv_heads * dim);
      const BufferId v = buffer(block + "v", model_.kv_heads * dim);
      const BufferId mixed = buffer(block + "mixed", model_.heads * dim);
      model_.trunk.emplace_back(RmsNorm{model_.hidden, norm(block + "attn_norm.weight"), normed});
      add_projection(block + "attn_q", normed, q, share_.head_begin * dim, model_.heads * dim);
      add_projection(block + "attn_k", normed, k, share_.kv_head_begin * dim,
                     model_.kv_heads * dim);
      add_projection(block + "attn_v", normed, v, share_.kv_head_begin * dim,
                     model_.kv_heads * dim);
      if (shape_.qk_norm) {
        model_.trunk.emplace_back(
            HeadNorm{q, model_.heads, norm(block + "attn_q_norm.weight", dim)});
        model_.trunk.emplace_back(
            HeadNorm{k, model_.kv_heads, norm(block + "attn_k_norm.weight", dim)});
      }
      model_.trunk.emplace_back(Rope{q, model_.heads});
      model_.trunk.emplace_back(Rope{k, model_.kv_heads});
      model_.trunk.emplace_back(StoreKv{k, v, local});
      model_.trunk.emplace_back(Attention{q, mixed, local});
      const WeightId output = matrix(block + "attn_output.weight", 0, shape_.hidden,
                                     share_.head_begin * dim, model_.heads * dim);
      model_.trunk.emplace_back(
          MatMul{mixed, output, kNone, partial, std::lcm(dim, kernels::kActivationBlock)});
    }
    add_sum(partial, model_.hidden, layer, "attention");
  }

  void add_projection(const std::string& name, BufferId in, BufferId out, int64_t row,
                      int64_t rows) {
    const WeightId weight = matrix(name + ".weight", row, rows, 0, shape_.hidden);
    VectorId bias = kNone;
    if (shape_.qkv_bias) bias = vector(name + ".bias", row, rows);
    model_.trunk.emplace_back(MatMul{in, weight, bias, out, 0});
  }

  void add_ffn(int64_t layer, const std::string& block, BufferId x, RowDomain rows) {
    const int64_t begin = share_.ffn_begin;
    const int64_t columns = share_.ffn_end - share_.ffn_begin;
    const BufferId partial = partial_buffer(block + "ffn_partial", rows);
    if (columns == 0) {
      model_.trunk.emplace_back(Zero{partial});
    } else {
      const BufferId normed = buffer(block + "ffn_normed", shape_.hidden, rows);
      const BufferId gate = buffer(block + "gate", columns, rows);
      const BufferId up = buffer(block + "up", columns, rows);
      const BufferId act = buffer(block + "act", columns, rows);
      model_.trunk.emplace_back(RmsNorm{x, norm(block + "ffn_norm.weight"), normed});
      model_.trunk.emplace_back(
          MatMul{normed, matrix(block + "ffn_gate.weight", begin, columns, 0, shape_.hidden), kNone,
                 gate, 0});
      model_.trunk.emplace_back(MatMul{
          normed, matrix(block + "ffn_up.weight", begin, columns, 0, shape_.hidden), kNone, up, 0});
      model_.trunk.emplace_back(SwiGlu{gate, up, act});
      model_.trunk.emplace_back(
          MatMul{act, matrix(block + "ffn_down.weight", 0, shape_.hidden, begin, columns), kNone,
                 partial, weights::kFfnChunk});
    }
    add_sum(partial, x, layer, "ffn");
  }

  // x += the partial sums of all ranks.
  void add_sum(BufferId partial, BufferId x, int64_t layer, const char* phase) {
    BufferId sum = partial;
    if (plan_.tp > 1) {
      const Buffer& spec = model_.buffers[static_cast<size_t>(partial)];
      sum = buffer(spec.name + "s", spec.width, spec.rows);
      model_.trunk.emplace_back(AllReduceStart{partial, sum, layer, phase});
      model_.trunk.emplace_back(AllReduceFinish{sum});
    }
    model_.trunk.emplace_back(Add{x, sum});
  }

  // Vocabulary-parallel: each rank of the last stage has its rows of the head.
  void add_head() {
    const int64_t rows = share_.vocab_end - share_.vocab_begin;
    if (rows == 0) return;
    const BufferId normed = buffer("head_normed", shape_.hidden, RowDomain::kHead);
    model_.logits = buffer("logits", rows, RowDomain::kHead);
    const char* name = shape_.tied_output ? "token_embd.weight" : "output.weight";
    const WeightId weight = matrix(name, share_.vocab_begin, rows, 0, shape_.hidden);
    VectorId bias = kNone;
    if (file_.find_tensor("output.bias") != nullptr) {
      bias = vector("output.bias", share_.vocab_begin, rows);
    }
    model_.head.emplace_back(RmsNorm{model_.hidden_outputs, norm("output_norm.weight"), normed});
    model_.head.emplace_back(MatMul{normed, weight, bias, model_.logits, 0});
  }

  BufferId buffer(std::string name, int64_t width, RowDomain rows = RowDomain::kAll) {
    model_.buffers.push_back({std::move(name), width, rows, false});
    return static_cast<BufferId>(model_.buffers.size() - 1);
  }

  // What this rank has of a sum over ranks: f64, or, where it is the whole sum, rounded.
  BufferId partial_buffer(std::string name, RowDomain rows) {
    const BufferId id = buffer(std::move(name), shape_.hidden, rows);
    model_.buffers.back().f64 = plan_.tp > 1;
    return id;
  }

  WeightId matrix(const std::string& name, int64_t row, int64_t rows, int64_t k0, int64_t k) {
    const weights::TensorInfo& tensor = file_.tensor(name);
    if (tensor.dims[0] < k0 + k || tensor.rows() < row + rows) {
      throw EngineError("GGUF_INVALID", "tensor " + name + " is smaller than the metadata says");
    }
    const bool packed = is_block_type(tensor.type) && !plan_.topology.exact;
    model_.weights.push_back({&tensor, row, rows, k0, k, packed});
    return static_cast<WeightId>(model_.weights.size() - 1);
  }

  VectorId norm(const std::string& name) { return vector(name, 0, shape_.hidden); }
  VectorId norm(const std::string& name, int64_t count) { return vector(name, 0, count); }

  VectorId vector(const std::string& name, int64_t begin, int64_t count) {
    const weights::TensorInfo& tensor = file_.tensor(name);
    if (tensor.dims[0] < begin + count) {
      throw EngineError("GGUF_INVALID", "tensor " + name + " is smaller than the metadata says");
    }
    model_.vectors.push_back({&tensor, begin, count});
    return static_cast<VectorId>(model_.vectors.size() - 1);
  }

  const weights::GgufFile& file_;
  const weights::ShardPlan& plan_;
  const ModelShape& shape_;
  const RankShare& share_;
  Model model_;
};

}  // namespace

Model build_dense(const weights::GgufFile& file, const weights::ShardPlan& plan, int rank) {
  return DenseBuilder(file, plan, rank).build();
}

}  // namespace coxswain::models

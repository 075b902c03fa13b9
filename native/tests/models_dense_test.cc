// The lists of dense models: what families differ in, what ranks hold, and where they communicate.
#include "models/dense.h"

#include <algorithm>
#include <map>
#include <string>

#include "check.h"
#include "tiny_model.h"

using namespace coxswain;
using namespace coxswain::models;
using coxswain::testing::TinyModel;

namespace {

struct Built {
  std::vector<std::byte> image;
  std::shared_ptr<const weights::GgufFile> file;
  weights::ShardPlan plan;
  std::vector<Model> ranks;
};

Built build(const TinyModel& model, std::vector<double> split, int pp, bool exact = false) {
  Built built;
  built.image = model.builder().build();
  built.file = weights::GgufFile::parse(built.image, "tiny");
  weights::Topology topology;
  topology.split = std::move(split);
  topology.pp = pp;
  topology.exact = exact;
  built.plan = weights::make_plan(*built.file, topology);
  CHECK(!built.plan.refused);
  for (size_t rank = 0; rank < built.plan.ranks.size(); ++rank) {
    built.ranks.push_back(build_dense(*built.file, built.plan, static_cast<int>(rank)));
  }
  return built;
}

template <typename Op>
std::vector<Op> all_of(const std::vector<Item>& items) {
  std::vector<Op> found;
  for (const Item& item : items) {
    if (const Op* op = std::get_if<Op>(&item)) found.push_back(*op);
  }
  return found;
}

// How often each (row, column) of a tensor is used by the matmuls of all ranks.
std::map<std::string, std::vector<int>> coverage(const Built& built) {
  std::map<std::string, std::vector<int>> used;
  for (const Model& model : built.ranks) {
    for (const std::vector<Item>* list : {&model.trunk, &model.head}) {
      for (const MatMul& matmul : all_of<MatMul>(*list)) {
        const WeightView& view = model.weights[static_cast<size_t>(matmul.weight)];
        const int64_t columns = view.tensor->dims[0];
        std::vector<int>& cells = used[view.tensor->name];
        cells.resize(static_cast<size_t>(columns * view.tensor->rows()));
        for (int64_t row = view.row_begin; row < view.row_begin + view.row_count; ++row) {
          for (int64_t k = view.k0; k < view.k0 + view.k; ++k)
            ++cells[static_cast<size_t>(row * columns + k)];
        }
      }
    }
  }
  return used;
}

bool each_once(const std::vector<int>& cells) {
  return std::all_of(cells.begin(), cells.end(), [](int count) { return count == 1; });
}

void every_weight_counts_exactly_once() {
  const TinyModel model{.layers = 4, .heads = 6, .kv_heads = 2, .head_dim = 32, .ffn = 256};
  const std::vector<std::vector<double>> splits{{1}, {1, 1}, {2, 1}, {1, 1, 1, 1, 1, 1, 1}};
  for (const std::vector<double>& split : splits) {
    for (const int pp : {1, 2}) {
      const Built built = build(model, split, pp);
      const auto used = coverage(built);
      CHECK(used.size() == static_cast<size_t>(model.layers * 7 + 1));
      for (const auto& [name, cells] : used) {
        const bool kv =
            name.find("attn_k.") != std::string::npos || name.find("attn_v.") != std::string::npos;
        // KV heads whose group is cut are held by each rank that needs them.
        if (kv) {
          CHECK(std::all_of(cells.begin(), cells.end(), [](int count) { return count >= 1; }));
        } else {
          CHECK(each_once(cells));
        }
      }
    }
  }
}

void sums_meet_twice_a_layer() {
  const TinyModel model{.layers = 4, .ffn = 256};
  CHECK(all_of<AllReduceStart>(build(model, {1}, 1).ranks[0].trunk).empty());
  const Built built = build(model, {1, 1}, 2);
  for (const Model& rank : built.ranks) {
    CHECK(all_of<AllReduceStart>(rank.trunk).size() == 4);
    CHECK(all_of<AllReduceFinish>(rank.trunk).size() == 4);
    CHECK(all_of<Add>(rank.trunk).size() == 4);
  }
  // Rank (stage, index) sends to (stage + 1, index).
  CHECK(all_of<SendBoundary>(built.ranks[1].trunk)[0].peer == 3);
  CHECK(all_of<RecvBoundary>(built.ranks[3].trunk)[0].peer == 1);
  CHECK(built.ranks[0].head.empty() && built.ranks[2].embed.empty());
  CHECK(built.ranks[0].embed.size() == 1 && built.ranks[2].head.size() == 2);
}

void only_wanted_rows_pass_the_last_layer() {
  const Built built = build(TinyModel{}, {1}, 1);
  const Model& model = built.ranks[0];
  const auto rows_of = [&](BufferId id) { return model.buffers[static_cast<size_t>(id)].rows; };
  CHECK(all_of<TakeOutputs>(model.trunk).size() == 1);
  const std::vector<SwiGlu> ffn = all_of<SwiGlu>(model.trunk);
  CHECK(ffn.size() == 2);
  CHECK(rows_of(ffn[0].out) == RowDomain::kAll && rows_of(ffn[1].out) == RowDomain::kOutput);
  for (const Attention& attention : all_of<Attention>(model.trunk)) {
    CHECK(rows_of(attention.out) == RowDomain::kAll);
  }
  CHECK(rows_of(model.hidden_outputs) == RowDomain::kOutput &&
        rows_of(model.logits) == RowDomain::kHead);
}

void families_differ_where_they_should() {
  const auto biases = [](const Model& model) {
    size_t count = 0;
    for (const MatMul& matmul : all_of<MatMul>(model.trunk)) count += matmul.bias == kNone ? 0 : 1;
    return count;
  };
  const Built llama = build(TinyModel{}, {1}, 1);
  CHECK(biases(llama.ranks[0]) == 0 && all_of<HeadNorm>(llama.ranks[0].trunk).empty());
  CHECK(!llama.ranks[0].rope_half_split);
  const Built qwen2 = build(TinyModel{.architecture = "qwen2", .bias = true}, {1, 1}, 1);
  for (const Model& rank : qwen2.ranks) CHECK(biases(rank) == 6 && rank.rope_half_split);
  const Built qwen3 = build(TinyModel{.architecture = "qwen3", .qk_norm = true}, {1}, 1);
  CHECK(all_of<HeadNorm>(qwen3.ranks[0].trunk).size() == 4 && qwen3.ranks[0].rope_half_split);
}

void a_rank_without_heads_adds_zeros() {
  const Built built = build(TinyModel{.ffn = 256}, {1, 1, 1, 1, 1, 1}, 1);
  size_t headless = 0;
  for (const Model& rank : built.ranks) {
    if (rank.heads > 0) continue;
    ++headless;
    CHECK(rank.kv_heads == 0 && rank.head_groups.empty());
    CHECK(all_of<Zero>(rank.trunk).size() == 2 && all_of<Attention>(rank.trunk).empty());
    CHECK(all_of<AllReduceStart>(rank.trunk).size() == 4);
  }
  CHECK(headless == 2);
}

void groups_of_heads_share_their_kv_head() {
  // 6 heads on 2 KV heads, split 4 and 2: the second group is cut.
  const TinyModel model{.heads = 6, .kv_heads = 2, .head_dim = 32, .ffn = 192};
  const Built built = build(model, {2, 1}, 1);
  CHECK(built.ranks[0].heads == 4 && built.ranks[1].heads == 2);
  CHECK(built.ranks[0].head_groups.size() == 2);
  CHECK(built.ranks[0].head_groups[0].head_count == 3 &&
        built.ranks[0].head_groups[1].head_count == 1);
  CHECK(built.ranks[0].head_groups[1].kv_head == 1 &&
        built.ranks[0].head_groups[1].head_begin == 3);
  CHECK(built.ranks[1].head_groups.size() == 1 && built.ranks[1].head_groups[0].kv_head == 0);
}

void only_block_types_outside_exact_mode_are_packed() {
  const auto packed = [](const Built& built) {
    size_t count = 0;
    for (const WeightView& view : built.ranks[0].weights) count += view.packed ? 1 : 0;
    return count;
  };
  CHECK(packed(build(TinyModel{}, {1}, 1)) == 0);
  // Two layers of seven matrices and the head; the look-up table stays in the file.
  CHECK(packed(build(TinyModel{.type = TensorType::kQ8_0}, {1}, 1)) == 15);
  CHECK(packed(build(TinyModel{.type = TensorType::kQ8_0}, {1}, 1, true)) == 0);
}

}  // namespace

int main() {
  every_weight_counts_exactly_once();
  sums_meet_twice_a_layer();
  only_wanted_rows_pass_the_last_layer();
  families_differ_where_they_should();
  a_rank_without_heads_adds_zeros();
  groups_of_heads_share_their_kv_head();
  only_block_types_outside_exact_mode_are_packed();
  return coxswain::testing::finish("models_dense_test");
}

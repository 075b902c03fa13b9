// The planner: cuts that cover everything once, the shapes that are awkward, and every refusal.
#include "weights/plan.h"

#include <numeric>

#include "check.h"
#include "tiny_model.h"
#include "weights/partition.h"

using namespace coxswain;
using namespace coxswain::weights;
using coxswain::testing::TinyModel;

namespace {

// A parsed model together with the bytes that it points into.
struct Held {
  std::vector<std::byte> bytes;
  std::shared_ptr<const GgufFile> file;
  explicit Held(const TinyModel& model)
      : bytes(model.builder().build()), file(GgufFile::parse(bytes, "tiny.gguf")) {}
};

Topology tp(std::vector<double> split, int pp = 1) {
  Topology topology;
  topology.split = std::move(split);
  topology.pp = pp;
  return topology;
}

// 9 heads on 3 KV heads, as the default model has.
TinyModel nine_heads() {
  TinyModel model;
  model.layers = 6;
  model.hidden = 576 / 3;
  model.heads = 9;
  model.kv_heads = 3;
  model.head_dim = 64;
  model.ffn = 1536;
  model.vocab = 500;
  return model;
}

bool refused(const TinyModel& model, const Topology& topology, const std::string& text) {
  const Held held(model);
  const ShardPlan plan = make_plan(*held.file, topology);
  const bool ok = plan.refused && plan.refused->find(text) != std::string::npos &&
                  plan.ranks.empty() && plan.hash.empty();
  if (!ok) std::fprintf(stderr, "refused: %s\n", plan.refused.value_or("(accepted)").c_str());
  return ok;
}

// Ranges of one stage's ranks follow each other and cover [0, total).
template <typename Begin, typename End>
bool covers(const ShardPlan& plan, int stage, int64_t total, Begin begin, End end) {
  int64_t next = 0;
  for (const RankShare& share : plan.ranks) {
    if (share.stage != stage) continue;
    if (share.*begin != next || share.*end < next) return false;
    next = share.*end;
  }
  return next == total;
}

void check_cover(const ShardPlan& plan) {
  CHECK(!plan.refused);
  CHECK(static_cast<int>(plan.ranks.size()) == plan.tp * plan.pp);
  int64_t layer = 0;
  for (int stage = 0; stage < plan.pp; ++stage) {
    CHECK(covers(plan, stage, plan.shape.heads, &RankShare::head_begin, &RankShare::head_end));
    CHECK(covers(plan, stage, plan.shape.ffn, &RankShare::ffn_begin, &RankShare::ffn_end));
    const bool last = stage == plan.pp - 1;
    if (last) {
      CHECK(covers(plan, stage, plan.shape.vocab, &RankShare::vocab_begin, &RankShare::vocab_end));
    }
    for (const RankShare& share : plan.ranks) {
      if (share.stage != stage) continue;
      CHECK(share.rank == stage * plan.tp + share.tp_index);
      CHECK(share.layer_begin == layer && share.layer_end > layer);
      CHECK(share.embeds == (stage == 0));
      CHECK(last || share.vocab_begin == share.vocab_end);
      CHECK(share.ffn_begin % 32 == 0);
      const int64_t group = plan.shape.heads / plan.shape.kv_heads;
      for (int64_t head = share.head_begin; head < share.head_end; ++head) {
        CHECK(share.kv_head_begin <= head / group && head / group < share.kv_head_end);
      }
      CHECK((share.head_begin == share.head_end) == (share.kv_head_begin == share.kv_head_end));
    }
    layer = plan.ranks[static_cast<size_t>(stage * plan.tp)].layer_end;
  }
  CHECK(layer == plan.shape.layers);
}

void uneven_heads() {
  const Held held(nine_heads());
  const ShardPlan two = make_plan(*held.file, tp({1, 1}));
  check_cover(two);
  CHECK(two.ranks[0].head_end == 5);
  // The middle group's KV head is held by both.
  CHECK(two.ranks[0].kv_head_end == 2 && two.ranks[1].kv_head_begin == 1);
  CHECK(two.ranks[0].ffn_end == 768);
  const ShardPlan weighted = make_plan(*held.file, tp({2, 1}));
  CHECK(weighted.ranks[0].head_end == 6 && weighted.ranks[0].ffn_end == 1024);
  const ShardPlan three = make_plan(*held.file, tp({1, 1, 1}));
  CHECK(three.ranks[0].head_end == 3 && three.ranks[1].head_end == 6);
  CHECK(three.ranks[2].kv_head_begin == 2 && three.ranks[2].kv_head_end == 3);
  for (int count = 1; count <= 48; ++count) {
    check_cover(make_plan(*held.file, tp(std::vector<double>(static_cast<size_t>(count), 1.0))));
  }
  check_cover(make_plan(*held.file, tp({5, 1, 0.5, 3})));
  // More ranks than heads: some hold FFN columns only.
  const ShardPlan twelve = make_plan(*held.file, tp(std::vector<double>(12, 1.0)));
  int without = 0;
  for (const RankShare& share : twelve.ranks) {
    if (share.head_begin == share.head_end) {
      ++without;
      CHECK(share.kv_bytes_per_token == 0);
    }
  }
  CHECK(without == 3);
}

void block_types_are_cut_at_32_columns() {
  for (const int64_t head_dim : {16, 48, 80, 96, 64}) {
    TinyModel model;
    model.type = TensorType::kQ8_0;
    model.heads = 8;
    model.kv_heads = 4;
    model.head_dim = head_dim;
    const Held held(model);
    for (const auto& split : std::vector<std::vector<double>>{{1, 1}, {3, 1}, {1, 1, 1}}) {
      const ShardPlan plan = make_plan(*held.file, tp(split));
      check_cover(plan);
      for (const RankShare& share : plan.ranks) CHECK(share.head_begin * head_dim % 32 == 0);
    }
  }
  // Float types may be cut anywhere.
  TinyModel model;
  model.heads = 3;
  model.kv_heads = 1;
  const Held held(model);
  CHECK(make_plan(*held.file, tp({1, 1})).ranks[0].head_end == 2);
}

void odd_widths() {
  TinyModel model;
  model.ffn = 200;
  model.vocab = 101;
  const Held held(model);
  for (int count = 1; count <= 7; ++count) {
    check_cover(make_plan(*held.file, tp(std::vector<double>(static_cast<size_t>(count), 1.0))));
  }
  const ShardPlan two = make_plan(*held.file, tp({1, 1}));
  CHECK(two.ranks[0].ffn_end == 128 && two.ranks[0].vocab_end % 16 == 0);
}

void stages() {
  TinyModel model = nine_heads();
  model.vocab = 20'000;  // the head weighs about three layers
  const Held held(model);
  const ShardPlan automatic = make_plan(*held.file, tp({1}, 2));
  check_cover(automatic);
  CHECK(automatic.ranks[0].layer_end > 3);
  CHECK(automatic.collectives_per_token == 0);
  for (int pp = 1; pp <= 6; ++pp) check_cover(make_plan(*held.file, tp({1}, pp)));
  Topology explicit_ranges = tp({2, 1}, 2);
  explicit_ranges.layers = {{0, 1}, {2, 5}};
  const ShardPlan grid = make_plan(*held.file, explicit_ranges);
  check_cover(grid);
  CHECK(grid.ranks.size() == 4 && grid.ranks[2].layer_begin == 2);
  CHECK(grid.collectives_per_token == 2 * 6 + 1);
  // --layers alone says how many stages there are.
  Topology only_ranges = tp({1});
  only_ranges.layers = {{0, 0}, {1, 4}, {5, 5}};
  CHECK(make_plan(*held.file, only_ranges).pp == 3);
}

void refusals() {
  const TinyModel model = nine_heads();
  CHECK(refused(model, tp({1}, 7), "7 stages are more than the model's 6 layers"));
  CHECK(refused(model, tp({1}, 0), "--pp"));
  CHECK(refused(model, tp({1, -1}), "above 0"));
  CHECK(refused(model, tp({1, 0}), "above 0"));
  CHECK(refused(model, tp(std::vector<double>(49, 1.0)), "would have no work"));
  CHECK(refused(model, tp({1000, 1}), "rank 1 of 2 would have no work"));
  CHECK(refused(model, tp(std::vector<double>(300, 1.0)), "at most 256 ranks"));
  CHECK(refused(model, tp(std::vector<double>(65, 1.0)), "at most 64 can share a layer"));
  TinyModel deep{.layers = 70};
  CHECK(refused(deep, tp({1}, 64), "at most 63"));
  deep.layers = 63;
  const Held held(deep);
  Topology most = tp({1}, 63);
  for (int64_t layer = 0; layer < 63; ++layer) most.layers.emplace_back(layer, layer);
  check_cover(make_plan(*held.file, most));
  const auto ranges = [&](std::vector<std::pair<int64_t, int64_t>> layers, int pp) {
    Topology topology = tp({1}, pp);
    topology.layers = std::move(layers);
    return topology;
  };
  CHECK(refused(model, ranges({{0, 2}}, 2), "1 ranges for 2 stages"));
  CHECK(refused(model, ranges({{0, 2}, {4, 5}}, 2), "4-5 should begin at layer 3"));
  CHECK(refused(model, ranges({{0, 2}, {2, 5}}, 2), "should begin at layer 3"));
  CHECK(refused(model, ranges({{1, 5}}, 1), "should begin at layer 0"));
  CHECK(refused(model, ranges({{0, 2}, {3, 1}}, 2), "3-1"));
  CHECK(refused(model, ranges({{0, 2}, {3, 9}}, 2), "last layer is 5"));
  CHECK(refused(model, ranges({{0, 2}, {3, 4}}, 2), "ends at layer 4"));
  Topology context = tp({1});
  context.context = 5000;
  CHECK(refused(model, context, "--ctx 5000"));
  Topology kv = tp({1});
  kv.kv_type = 2;
  CHECK(refused(model, kv, "f32 or f16"));
}

void bytes() {
  TinyModel model;  // F32: held as in the file
  model.tied = false;
  const Held held(model);
  uint64_t tensors = 0;
  for (const TensorInfo& tensor : held.file->tensors()) tensors += tensor.bytes;
  CHECK(make_plan(*held.file, tp({1})).ranks[0].weight_bytes == tensors);
  // Two stages hold together what one holds.
  const ShardPlan stages_plan = make_plan(*held.file, tp({1}, 2));
  CHECK(stages_plan.ranks[0].weight_bytes + stages_plan.ranks[1].weight_bytes == tensors);
  const ShardPlan two = make_plan(*held.file, tp({1, 1}));
  CHECK(two.ranks[0].kv_bytes_per_token == 1 * 16 * 2 * 2 * 2);
  Topology wide = tp({1, 1});
  wide.kv_type = 0;
  CHECK(make_plan(*held.file, wide).ranks[0].kv_bytes_per_token == 1 * 16 * 2 * 2 * 4);
  // Two all-reduces a layer, each rank sends its 64 floats to the other one.
  CHECK(two.wire_bytes_per_token == 4 * 2 * 64 * 8 + kCandidateFrameBytes + kVerdictFrameBytes);
  CHECK(two.collectives_per_token == 5);
}

void hashes() {
  const Held held(nine_heads());
  const std::string hash = make_plan(*held.file, tp({1, 1})).hash;
  CHECK(hash.size() == 64);
  CHECK(make_plan(*held.file, tp({1, 1})).hash == hash);
  CHECK(make_plan(*held.file, tp({7, 7})).hash == hash);  // the same cuts
  CHECK(make_plan(*held.file, tp({2, 1})).hash != hash);
  CHECK(make_plan(*held.file, tp({1}, 2)).hash != hash);
  Topology exact = tp({1, 1});
  exact.exact = true;
  CHECK(make_plan(*held.file, exact).hash != hash);
  Topology kv = tp({1, 1});
  kv.kv_type = 0;
  CHECK(make_plan(*held.file, kv).hash != hash);
  Topology context = tp({1, 1});
  context.context = 1024;
  CHECK(make_plan(*held.file, context).hash != hash);
}

// The dynamic programme against trying every cut.
void partitions_are_optimal() {
  const std::vector<double> costs = {5, 1, 1, 1, 9, 2, 2, 7};
  const auto cost = [&](int64_t begin, int64_t end) {
    return std::accumulate(costs.begin() + begin, costs.begin() + end, 0.0);
  };
  const std::vector<double> weights = {1, 2, 1};
  double best = 1e9;
  for (int64_t a = 0; a <= 8; ++a) {
    for (int64_t b = a; b <= 8; ++b) {
      best = std::min(best, std::max({cost(0, a), cost(a, b) / 2, cost(b, 8)}));
    }
  }
  const std::vector<int64_t> bounds = partition(8, 1, weights, cost, false);
  CHECK(std::max({cost(0, bounds[1]), cost(bounds[1], bounds[2]) / 2, cost(bounds[2], 8)}) == best);
  CHECK((apportion(10, {1, 1, 1}) == std::vector<int64_t>{0, 4, 7, 10}));
  CHECK((apportion(2, {1, 1, 1}) == std::vector<int64_t>{0, 1, 2, 2}));
  CHECK((apportion(4, {3, 1}) == std::vector<int64_t>{0, 3, 4}));
  CHECK((apportion(0, {3, 1}) == std::vector<int64_t>{0, 0, 0}));
}

}  // namespace

int main() {
  uneven_heads();
  block_types_are_cut_at_32_columns();
  odd_widths();
  stages();
  refusals();
  bytes();
  hashes();
  partitions_are_optimal();
  return coxswain::testing::finish("weights_plan_test");
}

// make_plan: checks the topology, cuts each kind of work on its own, then counts bytes.
//
// The phases between two exchanges (attention; FFN; head) are balanced one by one, since each lasts
// as long as its largest share. All costs are bytes read per token.
#include "weights/plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/sha256.h"
#include "weights/partition.h"
#include "weights/shard_bytes.h"

namespace coxswain::weights {
namespace {

// Up to this size everyone sends everything to everyone (comm.h kDirectExchangeBytes).
constexpr uint64_t kDirectExchangeBytes = 32 * 1024;

struct LayerTensors {
  const TensorInfo *q, *k, *v, *output, *gate, *up, *down;
};

LayerTensors layer_tensors(const GgufFile& file, int64_t layer) {
  const std::string p = "blk." + std::to_string(layer) + ".";
  const auto get = [&](const char* name) { return &file.tensor(p + name + ".weight"); };
  return {get("attn_q"),   get("attn_k"), get("attn_v"),  get("attn_output"),
          get("ffn_gate"), get("ffn_up"), get("ffn_down")};
}

double layer_cost(const LayerTensors& t) {
  double bytes = 0;
  for (const TensorInfo* tensor : {t.q, t.k, t.v, t.output, t.gate, t.up, t.down}) {
    bytes += static_cast<double>(tensor->bytes);
  }
  return bytes;
}

class Planner {
 public:
  Planner(const GgufFile& file, const Topology& topology)
      : file_(file), head_(file.find_tensor("output.weight")) {
    plan_.shape = read_model_shape(file);
    plan_.topology = topology;
    plan_.pp = 0;
    plan_.tp = 0;
    plan_.collectives_per_token = 0;
    plan_.wire_bytes_per_token = 0;
    if (head_ == nullptr) head_ = &file.tensor("token_embd.weight");
    for (int64_t i = 0; i < plan_.shape.layers; ++i) layers_.push_back(layer_tensors(file, i));
  }

  ShardPlan make() {
    plan_.refused = fill_in_topology();
    if (!plan_.refused) plan_.refused = cut_layers();
    if (!plan_.refused) plan_.refused = cut_stage();
    if (plan_.refused) return std::move(plan_);
    for (int stage = 0; stage < plan_.pp; ++stage) {
      for (int index = 0; index < plan_.tp; ++index) plan_.ranks.push_back(share(stage, index));
    }
    count_exchanges();
    plan_.hash = hex(sha256(plan_text()));
    return std::move(plan_);
  }

 private:
  using Refusal = std::optional<std::string>;
  const ModelShape& shape() const { return plan_.shape; }
  bool exact() const { return plan_.topology.exact; }

  // --- topology
  // -----------------------------------------------------------------------------------

  Refusal fill_in_topology() {
    Topology& t = plan_.topology;
    if (t.split.empty()) t.split = {1.0};
    for (const double weight : t.split) {
      if (!std::isfinite(weight) || weight <= 0) {
        return "every weight of --split must be a number above 0 (leave a machine out instead of "
               "giving it no share)";
      }
    }
    const double total = std::accumulate(t.split.begin(), t.split.end(), 0.0);
    if (!std::isfinite(total)) return "the weights of --split are too large to add up";
    if (t.pp < 1) return "--pp must be at least 1";
    if (!t.layers.empty() && t.pp == 1)
      t.pp = static_cast<int>(std::min<size_t>(t.layers.size(), kMaxRanks + 1));
    const int64_t ranks = static_cast<int64_t>(t.split.size()) * t.pp;
    if (static_cast<int64_t>(t.split.size()) > kMaxRanks || ranks > kMaxRanks) {
      return "at most " + std::to_string(kMaxRanks) + " ranks are supported";
    }
    if (static_cast<int64_t>(t.split.size()) > kGroupMax) {
      return std::to_string(t.split.size()) + " tensor-parallel ranks are too many: at most " +
             std::to_string(kGroupMax) + " can share a layer (--tp, --split)";
    }
    if (t.pp > kStagesMax) {
      return std::to_string(t.pp) + " stages are too many: at most " + std::to_string(kStagesMax) +
             " are supported (--pp, --layers)";
    }
    plan_.tp = static_cast<int>(t.split.size());
    plan_.pp = t.pp;
    if (t.kv_type > 1) return "the key/value type must be f32 or f16";
    if (t.context < 0 || t.context > shape().context) {
      return "--ctx " + std::to_string(t.context) + " is not within the model's context of " +
             std::to_string(shape().context) + " tokens";
    }
    if (t.context == 0) t.context = shape().context;
    return std::nullopt;
  }

  Refusal cut_layers() {
    const int64_t count = shape().layers;
    if (plan_.pp > count) {
      return std::to_string(plan_.pp) + " stages are more than the model's " +
             std::to_string(count) + " layers";
    }
    if (plan_.topology.layers.empty()) {
      cut_layers_by_cost();
      return std::nullopt;
    }
    if (static_cast<int>(plan_.topology.layers.size()) != plan_.pp) {
      return "--layers names " + std::to_string(plan_.topology.layers.size()) + " ranges for " +
             std::to_string(plan_.pp) + " stages";
    }
    int64_t next = 0;
    for (const auto& [first, last] : plan_.topology.layers) {
      const std::string text = std::to_string(first) + "-" + std::to_string(last);
      if (first != next || last < first) {
        return "--layers must cover the layers in order without gaps: the range " + text +
               " should begin at layer " + std::to_string(next);
      }
      if (last >= count) {
        return "--layers names " + text + ", but the model's last layer is " +
               std::to_string(count - 1);
      }
      next = last + 1;
    }
    if (next != count) {
      return "--layers ends at layer " + std::to_string(next - 1) +
             ", but the model's last layer is " + std::to_string(count - 1);
    }
    return std::nullopt;
  }

  void cut_layers_by_cost() {
    std::vector<double> sums = {0};  // sums[i]: bytes that layers 0..i-1 read per token
    for (const LayerTensors& layer : layers_) sums.push_back(sums.back() + layer_cost(layer));
    const int64_t count = shape().layers;
    const double embed = read_bytes(file_.tensor("token_embd.weight"), 1, shape().hidden);
    const double head = read_bytes(*head_, shape().vocab, shape().hidden);
    const auto cost = [&](int64_t begin, int64_t end) {
      double bytes = sums[static_cast<size_t>(end)] - sums[static_cast<size_t>(begin)];
      if (begin == 0) bytes += embed;
      if (end == count) bytes += head;
      return bytes;
    };
    const std::vector<double> equal(static_cast<size_t>(plan_.pp), 1.0);
    const std::vector<int64_t> bounds = partition(count, 1, equal, cost, true);
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      plan_.topology.layers.emplace_back(bounds[i], bounds[i + 1] - 1);
    }
  }

  // --- one stage's group
  // --------------------------------------------------------------------------

  // Block types are cut at multiples of 32 columns, so attn_output at groups of heads that wide.
  int64_t head_grain() const {
    for (const LayerTensors& layer : layers_) {
      if (is_block_type(layer.output->type)) return 32 / std::gcd<int64_t>(shape().head_dim, 32);
    }
    return 1;
  }

  std::pair<int64_t, int64_t> kv_range(int64_t head_begin, int64_t head_end) const {
    const int64_t group = shape().heads / shape().kv_heads;
    if (head_begin == head_end) return {head_begin / group, head_begin / group};
    return {head_begin / group, (head_end - 1) / group + 1};
  }

  Refusal cut_stage() {
    double head_bytes = 0;
    double kv_bytes = 0;
    for (const LayerTensors& layer : layers_) {
      head_bytes += read_bytes(*layer.q, shape().head_dim, shape().hidden) +
                    read_bytes(*layer.output, shape().hidden, shape().head_dim);
      kv_bytes += read_bytes(*layer.k, shape().head_dim, shape().hidden) +
                  read_bytes(*layer.v, shape().head_dim, shape().hidden);
    }
    const auto attention_cost = [&](int64_t begin, int64_t end) {
      const auto [kv_begin, kv_end] = kv_range(begin, end);
      return static_cast<double>(end - begin) * head_bytes +
             static_cast<double>(kv_end - kv_begin) * kv_bytes;
    };
    const std::vector<double>& split = plan_.topology.split;
    heads_ = partition(shape().heads, head_grain(), split, attention_cost, false);
    ffn_ = cut_ffn();
    vocabulary_ = pieces(shape().vocab, kVocabularyPiece);
    for (size_t i = 0; i < split.size(); ++i) {
      if (heads_[i] == heads_[i + 1] && ffn_[i] == ffn_[i + 1]) {
        return "tensor-parallel rank " + std::to_string(i) + " of " + std::to_string(split.size()) +
               " would have no work: the model has " + std::to_string(shape().heads) +
               " query heads and " + std::to_string((shape().ffn + kFfnPiece - 1) / kFfnPiece) +
               " pieces of 32 FFN columns to share (use fewer ranks or a more even --split)";
      }
    }
    return std::nullopt;
  }

  // Between chunks, unless that leaves a rank idle or makes the slowest more than an eighth slower.
  std::vector<int64_t> cut_ffn() const {
    std::vector<int64_t> chunks = pieces(shape().ffn, kFfnChunk);
    std::vector<int64_t> fine = pieces(shape().ffn, kFfnPiece);
    const bool idle = std::adjacent_find(chunks.begin(), chunks.end()) != chunks.end();
    return !idle && slowest(chunks) <= 1.125 * slowest(fine) ? chunks : fine;
  }
  double slowest(const std::vector<int64_t>& bounds) const {
    double time = 0;
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      const double share = static_cast<double>(bounds[i + 1] - bounds[i]);
      time = std::max(time, share / plan_.topology.split[i]);
    }
    return time;
  }

  std::vector<int64_t> pieces(int64_t total, int64_t piece) const {
    std::vector<int64_t> bounds = apportion((total + piece - 1) / piece, plan_.topology.split);
    for (int64_t& bound : bounds) bound = std::min(bound * piece, total);
    return bounds;
  }

  // --- shares
  // -------------------------------------------------------------------------------------

  RankShare share(int stage, int index) const {
    const auto [first_layer, last_layer] = plan_.topology.layers[static_cast<size_t>(stage)];
    const size_t i = static_cast<size_t>(index);
    const bool last = stage == plan_.pp - 1;
    RankShare s{};
    s.rank = stage * plan_.tp + index;
    s.stage = stage;
    s.tp_index = index;
    s.layer_begin = first_layer;
    s.layer_end = last_layer + 1;
    s.head_begin = heads_[i];
    s.head_end = heads_[i + 1];
    std::tie(s.kv_head_begin, s.kv_head_end) = kv_range(s.head_begin, s.head_end);
    s.ffn_begin = ffn_[i];
    s.ffn_end = ffn_[i + 1];
    s.vocab_begin = last ? vocabulary_[i] : 0;
    s.vocab_end = last ? vocabulary_[i + 1] : 0;
    s.embeds = stage == 0;
    for (int64_t layer = s.layer_begin; layer < s.layer_end; ++layer) {
      s.weight_bytes += layer_bytes(s, layers_[static_cast<size_t>(layer)]);
    }
    s.weight_bytes += end_bytes(s, last);
    const uint64_t element = plan_.topology.kv_type == 0 ? 4 : 2;
    s.kv_bytes_per_token =
        static_cast<uint64_t>((s.kv_head_end - s.kv_head_begin) * shape().head_dim * 2 *
                              (s.layer_end - s.layer_begin)) *
        element;
    return s;
  }

  uint64_t layer_bytes(const RankShare& s, const LayerTensors& t) const {
    const int64_t hidden = shape().hidden;
    const int64_t q = (s.head_end - s.head_begin) * shape().head_dim;
    const int64_t kv = (s.kv_head_end - s.kv_head_begin) * shape().head_dim;
    const int64_t ffn = s.ffn_end - s.ffn_begin;
    // Norms and biases are held as floats.
    int64_t floats = 2 * hidden;
    if (shape().qkv_bias) floats += q + 2 * kv;
    if (shape().qk_norm) floats += 2 * shape().head_dim;
    return held_bytes(*t.q, q, hidden, exact()) + held_bytes(*t.k, kv, hidden, exact()) +
           held_bytes(*t.v, kv, hidden, exact()) + held_bytes(*t.output, hidden, q, exact()) +
           held_bytes(*t.gate, ffn, hidden, exact()) + held_bytes(*t.up, ffn, hidden, exact()) +
           held_bytes(*t.down, hidden, ffn, exact()) + static_cast<uint64_t>(floats) * 4;
  }

  // The embedding is looked up in the mapped file; the head is packed. A tied table that both ends
  // of one rank read from the map is counted once.
  uint64_t end_bytes(const RankShare& s, bool last) const {
    const TensorInfo& embedding = file_.tensor("token_embd.weight");
    uint64_t bytes = s.embeds ? embedding.bytes : 0;
    if (!last) return bytes;
    bytes += static_cast<uint64_t>(shape().hidden) * 4;
    const bool packed = is_block_type(head_->type) && !exact();
    if (!shape().tied_output || packed || !s.embeds) {
      bytes += held_bytes(*head_, s.vocab_end - s.vocab_begin, shape().hidden, exact());
    }
    return bytes;
  }

  // --- wire
  // ---------------------------------------------------------------------------------------

  void count_exchanges() {
    // Partials travel as f64, reduced slices and the rows between stages as f32.
    const uint64_t row = static_cast<uint64_t>(shape().hidden) * 4;
    const uint64_t n = static_cast<uint64_t>(plan_.tp);
    const uint64_t all_reduces = n > 1 ? 2 * static_cast<uint64_t>(shape().layers) : 0;
    const uint64_t all_reduce_bytes =
        2 * row <= kDirectExchangeBytes ? n * (n - 1) * 2 * row : (n - 1) * (2 * row + row);
    plan_.collectives_per_token = static_cast<int64_t>(all_reduces) + (n > 1 ? 1 : 0);
    plan_.wire_bytes_per_token = all_reduces * all_reduce_bytes +
                                 static_cast<uint64_t>(plan_.pp - 1) * n * row +
                                 (n - 1) * kCandidateFrameBytes +
                                 (n * static_cast<uint64_t>(plan_.pp) - 1) * kVerdictFrameBytes;
  }

  // Two plans with the same text cut the same way; what they hold is the fingerprint's business.
  std::string plan_text() const {
    const Topology& t = plan_.topology;
    std::string text = "coxswain plan 1\ntp " + std::to_string(plan_.tp) + " pp " +
                       std::to_string(plan_.pp) + " kv " + std::to_string(t.kv_type) + " mode " +
                       (t.exact ? "exact" : "a8") + " context " + std::to_string(t.context) + "\n";
    const auto range = [](int64_t begin, int64_t end) {
      return " " + std::to_string(begin) + ":" + std::to_string(end);
    };
    for (const RankShare& s : plan_.ranks) {
      text += std::to_string(s.rank) + range(s.layer_begin, s.layer_end) +
              range(s.head_begin, s.head_end) + range(s.kv_head_begin, s.kv_head_end) +
              range(s.ffn_begin, s.ffn_end) + range(s.vocab_begin, s.vocab_end) + "\n";
    }
    return text;
  }

  const GgufFile& file_;
  const TensorInfo* head_;
  ShardPlan plan_;
  std::vector<LayerTensors> layers_;
  std::vector<int64_t> heads_, ffn_, vocabulary_;  // boundaries, tp + 1 each
};

}  // namespace

ShardPlan make_plan(const GgufFile& file, const Topology& topology) {
  return Planner(file, topology).make();
}

}  // namespace coxswain::weights

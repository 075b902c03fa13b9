// The shard planner: (model, topology) -> who holds which layers, heads, FFN columns, vocabulary
// rows. Pure: the same file and topology give the same plan, and the same hash, on every host. An
// impossible topology is not an error here but `refused`: one sentence for the user.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weights/gguf.h"
#include "weights/model_shape.h"

namespace coxswain::weights {

struct Topology {
  std::vector<double> split;  // weight of each TP rank; size = tp
  int pp = 1;
  std::vector<std::pair<int64_t, int64_t>>
      layers;            // explicit inclusive ranges, one a stage, or empty
  uint32_t kv_type = 1;  // kernels::KvType
  bool exact = false;
  int64_t context = 0;  // 0: the model's
};

// Payload at the end of a greedy step, for the estimate below: what every other rank of the last
// stage's group sends its leader (digest, partial sums, one candidate), and what the leader tells
// each other rank of the plan (the verdict). Sampling with a long tail sends more candidates.
inline constexpr uint64_t kCandidateFrameBytes = 32;
inline constexpr uint64_t kVerdictFrameBytes = 24;
inline constexpr int64_t kFfnPiece = 32;  // columns of the smallest FFN share
// Columns of ffn_down that are summed in f32; their sums are added in f64 (kernels.h A8Out). Shares
// end between chunks where that costs little, so that every cut gives the same sums.
inline constexpr int64_t kFfnChunk = 128;
inline constexpr int64_t kVocabularyPiece = 16;  // rows of the smallest share of the head
inline constexpr int64_t kMaxRanks = 256;
// Ranks of a stage: each waits for all others at once.
inline constexpr int64_t kGroupMax = 64;
// Stages + 1 steps are in flight, and an engine queues 64.
inline constexpr int kStagesMax = 63;

// Half-open ranges. Rank number = stage * tp + tp_index.
struct RankShare {
  int rank, stage, tp_index;
  int64_t layer_begin, layer_end;
  int64_t head_begin, head_end;  // query heads
  int64_t kv_head_begin,
      kv_head_end;                 // every KV head a query head of this rank needs (may overlap)
  int64_t ffn_begin, ffn_end;      // FFN columns, multiples of 32 (the last may end at ffn)
  int64_t vocab_begin, vocab_end;  // rows of the head; empty unless last stage
  bool embeds;                     // first stage
  uint64_t weight_bytes;           // as held: packed or mapped, tables of both ends included
  uint64_t kv_bytes_per_token;
};

struct ShardPlan {
  ModelShape shape;
  Topology topology;  // filled in: pp, layers and context as planned
  int tp, pp;
  std::vector<RankShare> ranks;
  int64_t collectives_per_token;  // of the groups, summed over the stages
  uint64_t wire_bytes_per_token;  // sent by all ranks together for one decoded token
  std::string hash;  // SHA-256 (hex) of fingerprint-independent plan text + mode + kv type
  std::optional<std::string> refused;  // then ranks is empty and hash is ""
};

ShardPlan make_plan(const GgufFile& file, const Topology& topology);

}  // namespace coxswain::weights

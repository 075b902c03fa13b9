// The step record and its result on the wire: sequences of little-endian u32 words.
// Written by src/wire/step-codec.ts (and by tests), read by the engine and by FakeEngine.
// A malformed record is EngineError("STEP_INVALID") naming the word; it changes nothing.
//
// RECORD   word  meaning
//          0     0x31535843 ("CXS1")
//          1,2   epoch (lo, hi)     3,4  step (lo, hi)
//          5     slot_op count      6  run count      7  output count
//   then slot ops, each: kind, slot, then
//     1 create     length, block_count, token_count, blocks..., tokens...   (token_count == length)
//     2 append     block_count, blocks...            adds blocks to the slot's table
//     3 truncate   length, block_count               forget tokens >= length, keep that many blocks
//     4 drop
//     5 copy       from_block, to_block, rows        copies the first rows of a block (slot is 0)
//     6 sampler    22 fixed words then lists:
//                  temperature f32, top_k, top_p f32, min_p f32, repetition f32, presence f32,
//                  frequency f32, seed lo, seed hi, choice, prompt_length, length_max,
//                  top_logprobs (0..20), flags (bit 0: want the token's own logprob),
//                  stop_count, bias_count, reserved x 6, stop ids..., then bias (id, f32)...
//     slot ops take effect before the runs, in list order.
//   then runs, each: slot, pos0, n, source
//     source 0: then n token ids.  source 1: n == 1; then from_step lo, hi, from_output index.
//     A row whose source finished (or was itself skipped) is skipped on every rank.
//     Rows are numbered through the step in run order.
//   then outputs, each: row, want, argument
//     want 1 token    sample with the slot's sampler; argument 0
//     want 2 score    argument = target token id or 0xffffffff; top 40
//     want 3 logits   all logits of the row
//
// RESULT   word 0 0x31525843 ("CXR1"), 1,2 epoch, 3,4 step, 5 output count, 6 compute_us, 7 wait_us
//   then per output: want, status (0 ok, 1 skipped)
//     skipped: nothing more
//     token   id, finish (0 no, 1 stop id, 2 length_max), logprob f32, n_top, (id, logprob f32)*
//     score   argmax, gap f32, logsumexp f32, target logit f32, n_top, (id, logit f32)*
//     logits  count, f32*
//   Ranks other than the leader of the last stage answer with output count 0.
//
// length_max: the sampled token with index pos+1 finishes the row when pos + 2 >= length_max, where
// length_max = prompt_length + max_tokens. finish 1 wins over 2.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace coxswain::engine {

struct SamplerParams {
  float temperature = 0, top_p = 1, min_p = 0, repetition = 1, presence = 0, frequency = 0;
  uint32_t top_k = 0, choice = 0, prompt_length = 0, length_max = 0, top_logprobs = 0, flags = 0;
  uint64_t seed = 0;
  std::vector<uint32_t> stop_ids;
  std::vector<std::pair<uint32_t, float>> bias;
};

struct CreateSlot {
  uint32_t slot, length;
  std::vector<uint32_t> blocks, tokens;
};
struct AppendBlocks {
  uint32_t slot;
  std::vector<uint32_t> blocks;
};
struct TruncateSlot {
  uint32_t slot, length, block_count;
};
struct DropSlot {
  uint32_t slot;
};
struct CopyBlock {
  uint32_t from, to, rows;
};
struct SetSampler {
  uint32_t slot;
  SamplerParams params;
};
using SlotOp =
    std::variant<CreateSlot, AppendBlocks, TruncateSlot, DropSlot, CopyBlock, SetSampler>;

struct Run {
  uint32_t slot, pos0, n;
  bool from_output;
  std::vector<uint32_t> tokens;  // n ids unless from_output
  uint64_t from_step;
  uint32_t from_index;
};
enum class Want : uint32_t { kToken = 1, kScore = 2, kLogits = 3 };
struct Output {
  uint32_t row;
  Want want;
  uint32_t argument;
};

struct StepRecord {
  uint64_t epoch, step;
  std::vector<SlotOp> slot_ops;
  std::vector<Run> runs;
  std::vector<Output> outputs;
};

StepRecord decode_step_record(std::span<const std::byte> bytes);
// The same into storage that is used again; after an error its content is of no meaning.
void decode_step_record(std::span<const std::byte> bytes, StepRecord& record);

}  // namespace coxswain::engine

// Decoder of step records. Every count is checked against the words that are left before anything
// is reserved, so a record can never ask for more memory than its own size times a small constant.
#include "engine/step_record.h"

#include <bit>
#include <cstring>

#include "base/error.h"

namespace coxswain::engine {
namespace {

constexpr uint32_t kRecordMagic = 0x31535843;
constexpr uint32_t kTopLogprobsMax = 20;

class WordReader {
 public:
  explicit WordReader(std::span<const std::byte> bytes) : bytes_(bytes) {
    if (bytes.size() % 4 != 0) {
      throw EngineError("STEP_INVALID", "step record: " + std::to_string(bytes.size()) +
                                            " bytes are not whole words");
    }
  }

  uint32_t word(const char* what) {
    if (remaining() == 0) fail(std::string("ends where ") + what + " should stand");
    uint32_t value = 0;
    std::memcpy(&value, bytes_.data() + at_ * 4, 4);
    ++at_;
    if constexpr (std::endian::native == std::endian::big) value = __builtin_bswap32(value);
    return value;
  }

  uint64_t wide(const char* what) {
    const uint64_t low = word(what);
    return low | (static_cast<uint64_t>(word(what)) << 32);
  }

  float number(const char* what) { return std::bit_cast<float>(word(what)); }

  // A count of things that take at least `words` words each.
  uint32_t count(const char* what, size_t words) {
    const uint32_t value = word(what);
    if (value > remaining() / words) {
      --at_;
      fail(std::string(what) + " " + std::to_string(value) + " is more than the record holds");
    }
    return value;
  }

  void words(std::vector<uint32_t>& out, uint32_t n, const char* what) {
    if (n > remaining()) fail(std::string("ends inside ") + what);
    out.resize(n);
    for (uint32_t& value : out) value = word(what);
  }

  size_t remaining() const { return bytes_.size() / 4 - at_; }

  [[noreturn]] void fail(const std::string& text) const {
    throw EngineError("STEP_INVALID", "step record, word " + std::to_string(at_) + ": " + text);
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

SamplerParams read_sampler(WordReader& in) {
  SamplerParams params;
  params.temperature = in.number("temperature");
  params.top_k = in.word("top_k");
  params.top_p = in.number("top_p");
  params.min_p = in.number("min_p");
  params.repetition = in.number("repetition penalty");
  params.presence = in.number("presence penalty");
  params.frequency = in.number("frequency penalty");
  params.seed = in.wide("seed");
  params.choice = in.word("choice");
  params.prompt_length = in.word("prompt_length");
  params.length_max = in.word("length_max");
  params.top_logprobs = in.word("top_logprobs");
  params.flags = in.word("sampler flags");
  const uint32_t stop_count = in.word("stop_count");
  const uint32_t bias_count = in.word("bias_count");
  for (int reserved = 0; reserved < 6; ++reserved) in.word("reserved");
  in.words(params.stop_ids, stop_count, "stop ids");
  if (bias_count > in.remaining() / 2) in.fail("ends inside the logit bias");
  params.bias.resize(bias_count);
  for (auto& [id, bias] : params.bias) {
    id = in.word("bias id");
    bias = in.number("bias");
  }
  const bool ordered = params.temperature >= 0 && params.top_p > 0 && params.min_p >= 0 &&
                       params.min_p <= 1 && params.repetition > 0;  // false for NaN too
  if (!ordered || params.top_logprobs > kTopLogprobsMax)
    in.fail("a sampler parameter is out of range");
  if (!(params.presence == params.presence) || !(params.frequency == params.frequency)) {
    in.fail("a penalty is not a number");
  }
  return params;
}

SlotOp read_slot_op(WordReader& in) {
  const uint32_t kind = in.word("slot op kind");
  const uint32_t slot = in.word("slot");
  switch (kind) {
    case 1: {
      CreateSlot op{slot, in.word("length"), {}, {}};
      const uint32_t block_count = in.word("block_count");
      const uint32_t token_count = in.word("token_count");
      if (token_count != op.length) in.fail("token_count differs from length");
      in.words(op.blocks, block_count, "blocks");
      in.words(op.tokens, token_count, "tokens");
      return op;
    }
    case 2: {
      AppendBlocks op{slot, {}};
      in.words(op.blocks, in.word("block_count"), "blocks");
      return op;
    }
    case 3: {
      TruncateSlot op{slot, 0, 0};
      op.length = in.word("length");
      op.block_count = in.word("block_count");
      return op;
    }
    case 4:
      return DropSlot{slot};
    case 5: {
      CopyBlock op{0, 0, 0};
      op.from = in.word("from_block");
      op.to = in.word("to_block");
      op.rows = in.word("rows");
      return op;
    }
    case 6:
      return SetSampler{slot, read_sampler(in)};
    default:
      in.fail("unknown slot op kind " + std::to_string(kind));
  }
}

void read_run(WordReader& in, Run& run) {
  run.slot = in.word("run slot");
  run.pos0 = in.word("pos0");
  run.n = in.word("n");
  const uint32_t source = in.word("source");
  if (run.n == 0) in.fail("a run without rows");
  run.from_output = source == 1;
  run.tokens.clear();
  if (source == 0) {
    in.words(run.tokens, run.n, "token ids");
  } else if (source == 1) {
    if (run.n != 1) in.fail("a run from an output has one row");
    run.from_step = in.wide("from_step");
    run.from_index = in.word("from_output");
  } else {
    in.fail("unknown run source " + std::to_string(source));
  }
}

Output read_output(WordReader& in) {
  Output output{in.word("row"), Want::kToken, 0};
  const uint32_t want = in.word("want");
  if (want < 1 || want > 3) in.fail("unknown want " + std::to_string(want));
  output.want = static_cast<Want>(want);
  output.argument = in.word("argument");
  return output;
}

}  // namespace

StepRecord decode_step_record(std::span<const std::byte> bytes) {
  StepRecord record;
  decode_step_record(bytes, record);
  return record;
}

void decode_step_record(std::span<const std::byte> bytes, StepRecord& record) {
  WordReader in(bytes);
  if (in.word("the magic number") != kRecordMagic) in.fail("this is not a step record");
  record.epoch = in.wide("epoch");
  record.step = in.wide("step");
  const uint32_t slot_ops = in.count("slot op count", 2);
  const uint32_t runs = in.count("run count", 5);
  const uint32_t outputs = in.count("output count", 3);
  record.slot_ops.clear();
  record.slot_ops.reserve(slot_ops);
  for (uint32_t i = 0; i < slot_ops; ++i) record.slot_ops.push_back(read_slot_op(in));
  record.runs.resize(runs);
  for (Run& run : record.runs) read_run(in, run);
  record.outputs.clear();
  record.outputs.reserve(outputs);
  for (uint32_t i = 0; i < outputs; ++i) record.outputs.push_back(read_output(in));
  if (in.remaining() != 0) in.fail("words after the last output");
}

}  // namespace coxswain::engine

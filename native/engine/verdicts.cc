// FRAME  step u64, output count u64, then per output: id u32, bits u32
//        (0-7 finish, 8 skipped, 9 the output asked for a token). Little-endian.
#include "engine/verdicts.h"

#include <cstring>
#include <string>

#include "base/error.h"
#include "comm/frame.h"

namespace coxswain::engine {
namespace {

// Header and padding included (comm/frame.h).
size_t link_bytes(size_t outputs) {
  const size_t payload = Verdicts::frame_bytes(outputs);
  return sizeof(comm::FrameHeader) + payload + comm::frame_padding(payload);
}

}  // namespace

void Verdicts::clear(uint64_t first_step) {
  for (Entry& entry : entries_) entry.step = UINT64_MAX;
  waiting_begin_ = waiting_end_ = 0;
  waiting_bytes_ = 0;
  next_ = first_step;
}

std::vector<OutputVerdict>& Verdicts::open(uint64_t step) {
  Entry& entry = entries_[step % kKept];
  entry.step = step;
  entry.outputs.clear();
  next_ = step + 1;
  return entry.outputs;
}

const std::vector<OutputVerdict>* Verdicts::find(uint64_t step) const {
  const Entry& entry = entries_[step % kKept];
  return entry.step == step ? &entry.outputs : nullptr;
}

void Verdicts::expect(uint64_t step, size_t outputs) {
  COX_CHECK(waiting_end_ - waiting_begin_ < kKept, "verdicts are taken before they pile up");
  waiting_[waiting_end_++ % kKept] = {step, outputs};
  waiting_bytes_ += link_bytes(outputs);
  next_ = step + 1;
}

void Verdicts::accept(std::span<const std::byte> frame) {
  const Waiting expected = waiting_[waiting_begin_ % kKept];
  uint64_t step = 0;
  uint64_t count = 0;
  COX_CHECK(frame.size() == frame_bytes(expected.outputs), "a verdict is read into its exact size");
  std::memcpy(&step, frame.data(), 8);
  std::memcpy(&count, frame.data() + 8, 8);
  if (step != expected.step || count != expected.outputs) {
    throw EngineError("LINK_PROTOCOL", "the verdict of step " + std::to_string(step) +
                                           " came where that of step " +
                                           std::to_string(expected.step) + " was due");
  }
  ++waiting_begin_;
  waiting_bytes_ -= link_bytes(expected.outputs);
  Entry& entry = entries_[step % kKept];
  entry.step = step;
  entry.outputs.resize(count);
  for (size_t i = 0; i < count; ++i) {
    uint32_t words[2];
    std::memcpy(words, frame.data() + 16 + 8 * i, 8);
    OutputVerdict& verdict = entry.outputs[i];
    verdict.id = words[0];
    verdict.finish = static_cast<Finish>(words[1] & 0xff);
    verdict.skipped = (words[1] & 0x100) != 0;
    verdict.token = (words[1] & 0x200) != 0;
  }
}

void Verdicts::encode(uint64_t step, std::span<const OutputVerdict> verdicts,
                      std::vector<std::byte>& frame) {
  frame.resize(frame_bytes(verdicts.size()));
  const uint64_t count = verdicts.size();
  std::memcpy(frame.data(), &step, 8);
  std::memcpy(frame.data() + 8, &count, 8);
  for (size_t i = 0; i < verdicts.size(); ++i) {
    const uint32_t words[2] = {verdicts[i].id, static_cast<uint32_t>(verdicts[i].finish) |
                                                   (verdicts[i].skipped ? 0x100u : 0u) |
                                                   (verdicts[i].token ? 0x200u : 0u)};
    std::memcpy(frame.data() + 16 + 8 * i, words, 8);
  }
}

}  // namespace coxswain::engine

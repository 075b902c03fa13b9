// What the sampler decided in the last steps: the id and finish flag of each output, as every rank
// knows them. A later run takes its token from here; a row whose source finished or was skipped is
// skipped on every rank.
//
// The leader records its own; the other ranks take them from the data plane: ranks of the last
// stage at once (the leader's next frames to them are sums), ranks of other stages when a run needs
// one, or when it is older than the steps in flight. Owner: the executor thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weights/plan.h"

namespace coxswain::engine {

enum class Finish : uint8_t { kNo = 0, kStop = 1, kLength = 2 };

struct OutputVerdict {
  uint32_t id = 0;
  Finish finish = Finish::kNo;
  bool token = false;    // the output asked for a token
  bool skipped = false;  // its row was skipped
  bool ends() const { return skipped || finish != Finish::kNo; }
};

class Verdicts {
 public:
  void clear(uint64_t first_step);
  // The entry of `step`, emptied, to be filled. Steps come in order.
  std::vector<OutputVerdict>& open(uint64_t step);
  // nullptr: unknown (too old, not yet received, never).
  const std::vector<OutputVerdict>* find(uint64_t step) const;

  // Steps whose verdict is still on its way from the leader, oldest first.
  void expect(uint64_t step, size_t outputs);
  bool waiting() const { return waiting_begin_ != waiting_end_; }
  uint64_t oldest_waiting() const { return waiting_[waiting_begin_ % kKept].step; }
  size_t oldest_bytes() const { return frame_bytes(waiting_[waiting_begin_ % kKept].outputs); }
  // What their frames take on the link from the leader.
  size_t waiting_bytes() const { return waiting_bytes_; }
  bool is_waiting_for(uint64_t step) const {
    return waiting() && step >= oldest_waiting() && step < next_;
  }
  // Takes the oldest expected verdict from its frame; LINK_PROTOCOL when it is another's.
  void accept(std::span<const std::byte> frame);

  static size_t frame_bytes(size_t outputs) { return 16 + 8 * outputs; }
  static void encode(uint64_t step, std::span<const OutputVerdict> verdicts,
                     std::vector<std::byte>& frame);

 private:
  static constexpr size_t kKept = 128;
  static_assert(kKept >= weights::kStagesMax + 3, "verdicts of the steps in flight are kept");
  struct Waiting {
    uint64_t step;
    size_t outputs;
  };
  struct Entry {
    uint64_t step = UINT64_MAX;
    std::vector<OutputVerdict> outputs;
  };
  std::array<Entry, kKept> entries_;
  std::array<Waiting, kKept> waiting_{};
  size_t waiting_begin_ = 0, waiting_end_ = 0;
  size_t waiting_bytes_ = 0;
  uint64_t next_ = 0;
};

}  // namespace coxswain::engine

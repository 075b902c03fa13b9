// The end of a step on the last stage: logits of the wanted rows, in windows of kHeadRows; what the
// leader (tp index 0) needs of every rank's vocabulary slice; the draw; the step's result and
// verdict.
//
// FRAME to the leader, one a window: digest u64 (of everything the ranks must agree on), then per
// output:
//   max f32, sum f32 (of exp(x - max) over the slice; 0 when not needed), target logit f32, count
//   u32, then `count` candidates (id u32, logit f32), or the whole slice as floats when the draw
//   needs it.
// Both ends know every size from the step record, so a frame of another size is LINK_PROTOCOL.
// A digest that differs is RANK_DIVERGED: no token of that step is released.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/comm.h"
#include "engine/plan_step.h"
#include "engine/run_program.h"
#include "engine/sampler.h"
#include "weights/plan.h"

namespace coxswain::engine {

class ResultWriter;

// One step as the head sees it.
struct HeadStep {
  const StepRecord& record;
  const Batch& batch;
  const std::vector<PlannedOutput>& outputs;
  const Slots& slots;
  comm::DataPlane& plane;
  comm::Wait wait;      // its deadline is set anew for every window
  int64_t patience_ns;  // of one window
  uint64_t digest;      // of this rank
};

class HeadRunner {
 public:
  HeadRunner(const weights::ShardPlan& plan, int rank, const Program& program,
             ProgramRunner& runner, ThreadPool& pool, const kernels::Kernels& kernels);

  bool leads() const { return rank_ == leader_; }
  // Every rank of the last stage calls this for a step with outputs. The leader fills `verdicts`
  // and appends the outputs to `result`; the others send their part and leave both alone.
  void run(const HeadStep& step, std::vector<OutputVerdict>& verdicts, ResultWriter& result);

 private:
  struct Need {
    bool whole = false, sum = false;
    size_t best = 0;
  };
  struct Summary {
    MaxSum part;
    float target = 0;
    std::vector<Candidate> best;
  };
  struct Slice {
    int rank;
    int64_t begin, rows;
    std::vector<std::byte> frame;
  };

  Need need_of(const PlannedOutput& output, const Slots& slots) const;
  void summarise(const Slice& slice, const Need& need, const PlannedOutput& output,
                 const float* logits, Summary& summary) const;
  size_t frame_bytes(const Slice& slice) const;
  void send_window(const HeadStep& step, const comm::Wait& wait, Slice& mine);
  void receive_window(const HeadStep& step, const comm::Wait& wait);
  // Reads one output's part of a frame; returns the bytes after it.
  const std::byte* read_part(const std::byte* at, const Slice& slice, const Need& need,
                             Summary& part, float* whole) const;
  void finish_output(const PlannedOutput& output, size_t in_window, const HeadStep& step,
                     OutputVerdict& verdict, ResultWriter& result);
  void finish_token(const PlannedOutput& output, const HeadStep& step, OutputVerdict& verdict,
                    ResultWriter& result);

  int rank_, leader_;
  const Program& program_;
  ProgramRunner& runner_;
  ThreadPool& pool_;
  const kernels::Kernels& kernels_;
  int64_t vocab_;
  std::vector<Slice> slices_;  // of all ranks of the last stage, in rank order
  size_t mine_ = 0;
  Sampler sampler_;
  // Per window.
  std::vector<Need> needs_;
  std::vector<const PlannedOutput*> window_;
  std::vector<Summary> summaries_;
  std::vector<const std::byte*> cursors_;  // into the slices' frames
  // Per output, on the leader.
  Summary received_;
  std::vector<float> whole_;
  std::vector<Candidate> best_;
  std::vector<MaxSum> parts_;
  float target_ = 0;
};

}  // namespace coxswain::engine

#include "engine/head_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "engine/result_writer.h"

namespace coxswain::engine {
namespace {

constexpr size_t kScoreTop = 40;
constexpr uint32_t kNoTarget = 0xffffffff;
constexpr size_t kFrameHeader = 8;
constexpr size_t kPartHeader = 16;

void append(std::vector<std::byte>& frame, const void* data, size_t bytes) {
  const size_t at = frame.size();
  frame.resize(at + bytes);
  std::memcpy(frame.data() + at, data, bytes);
}

}  // namespace

HeadRunner::HeadRunner(const weights::ShardPlan& plan, int rank, const Program& program,
                       ProgramRunner& runner, ThreadPool& pool, const kernels::Kernels& kernels)
    : rank_(rank),
      leader_((plan.pp - 1) * plan.tp),
      program_(program),
      runner_(runner),
      pool_(pool),
      kernels_(kernels),
      vocab_(plan.shape.vocab),
      sampler_(kernels, plan.shape.vocab) {
  for (const weights::RankShare& share : plan.ranks) {
    if (share.stage != plan.pp - 1) continue;
    if (share.rank == rank) mine_ = slices_.size();
    slices_.push_back({share.rank, share.vocab_begin, share.vocab_end - share.vocab_begin, {}});
  }
  summaries_.resize(static_cast<size_t>(models::kHeadRows));
  cursors_.resize(slices_.size());
  whole_.resize(static_cast<size_t>(vocab_));
}

HeadRunner::Need HeadRunner::need_of(const PlannedOutput& output, const Slots& slots) const {
  if (output.want == Want::kLogits) return {.whole = true, .sum = false, .best = 0};
  if (output.want == Want::kScore) return {.whole = false, .sum = true, .best = kScoreTop};
  const SamplerParams& params = *slots.live_slot(output.slot).sampler;
  const size_t candidates = candidates_needed(params);
  const bool logprobs = params.top_logprobs > 0 || (params.flags & 1) != 0;
  return {.whole = candidates == 0,
          .sum = logprobs,
          .best = std::max<size_t>(candidates, params.top_logprobs)};
}

void HeadRunner::run(const HeadStep& step, std::vector<OutputVerdict>& verdicts,
                     ResultWriter& result) {
  Slice& mine = slices_[mine_];
  int64_t computed = 0;  // rows of batch.output_rows that are done
  size_t reported = 0;   // outputs that are in the result
  const auto report_skipped = [&] {
    while (reported < step.outputs.size() && step.outputs[reported].skipped) {
      const PlannedOutput& output = step.outputs[reported++];
      verdicts.push_back({.token = output.want == Want::kToken, .skipped = true});
      result.word(static_cast<uint32_t>(output.want));
      result.word(1);
    }
  };
  size_t planned = 0;
  while (computed < step.batch.outputs()) {
    // A rank alone never waits, so the fence is looked at here too.
    if (step.wait.fence != nullptr && step.wait.fence->load(std::memory_order_relaxed)) {
      throw EngineError("EPOCH_FENCED", "the epoch was fenced before the head of step " +
                                            std::to_string(step.record.step) + " was done");
    }
    window_.clear();
    needs_.clear();
    while (planned < step.outputs.size() &&
           static_cast<int64_t>(window_.size()) < models::kHeadRows) {
      const PlannedOutput& output = step.outputs[planned++];
      if (output.skipped) continue;
      window_.push_back(&output);
      needs_.push_back(need_of(output, step.slots));
    }
    const int64_t rows = static_cast<int64_t>(window_.size());
    if (mine.rows > 0) runner_.run_head(step.batch, computed, rows);
    pool_.run(rows, [&](int64_t row, int) {
      const size_t index = static_cast<size_t>(row);
      if (needs_[index].whole && !needs_[index].sum) return;
      summarise(mine, needs_[index], *window_[index], program_.logits().data + row * mine.rows,
                summaries_[index]);
    });
    computed += rows;
    comm::Wait wait = step.wait;
    wait.deadline_ns = now_ns() + step.patience_ns;
    if (!leads()) {
      send_window(step, wait, mine);
      continue;
    }
    receive_window(step, wait);
    for (size_t index = 0; index < window_.size(); ++index) {
      report_skipped();
      ++reported;
      OutputVerdict& verdict = verdicts.emplace_back();
      finish_output(*window_[index], index, step, verdict, result);
    }
  }
  if (leads()) report_skipped();
}

void HeadRunner::summarise(const Slice& slice, const Need& need, const PlannedOutput& output,
                           const float* logits, Summary& summary) const {
  const std::span<const float> view(logits, static_cast<size_t>(slice.rows));
  summary.part = {-std::numeric_limits<float>::infinity(), 0};
  summary.best.clear();
  if (slice.rows == 0) return;
  if (need.sum) kernels_.max_sum_exp(logits, slice.rows, &summary.part.max, &summary.part.sum);
  if (!need.whole)
    top_candidates(view, static_cast<uint32_t>(slice.begin), need.best, summary.best);
  const int64_t target = static_cast<int64_t>(output.argument) - slice.begin;
  const bool here = output.want == Want::kScore && output.argument != kNoTarget && target >= 0 &&
                    target < slice.rows;
  summary.target = here ? logits[target] : 0;
}

size_t HeadRunner::frame_bytes(const Slice& slice) const {
  size_t bytes = kFrameHeader;
  const size_t rows = static_cast<size_t>(slice.rows);
  for (const Need& need : needs_) {
    bytes += kPartHeader;
    bytes += need.whole ? rows * sizeof(float) : std::min(need.best, rows) * sizeof(Candidate);
  }
  return bytes;
}

void HeadRunner::send_window(const HeadStep& step, const comm::Wait& wait, Slice& mine) {
  std::vector<std::byte>& frame = mine.frame;
  frame.clear();
  append(frame, &step.digest, sizeof(step.digest));
  for (size_t index = 0; index < window_.size(); ++index) {
    const Summary& summary = summaries_[index];
    const Need& need = needs_[index];
    const float header[3] = {need.sum ? summary.part.max : 0, need.sum ? summary.part.sum : 0,
                             window_[index]->want == Want::kScore ? summary.target : 0};
    const uint32_t count = need.whole ? 0 : static_cast<uint32_t>(summary.best.size());
    append(frame, header, sizeof(header));
    append(frame, &count, sizeof(count));
    if (need.whole) {
      append(frame, program_.logits().data + static_cast<int64_t>(index) * mine.rows,
             static_cast<size_t>(mine.rows) * sizeof(float));
    } else {
      append(frame, summary.best.data(), count * sizeof(Candidate));
    }
  }
  step.plane.send(leader_, frame, wait);
}

void HeadRunner::receive_window(const HeadStep& step, const comm::Wait& wait) {
  for (size_t i = 0; i < slices_.size(); ++i) {
    if (i == mine_) continue;
    Slice& slice = slices_[i];
    slice.frame.resize(frame_bytes(slice));
    step.plane.recv(slice.rank, slice.frame, wait);
    uint64_t digest = 0;
    std::memcpy(&digest, slice.frame.data(), sizeof(digest));
    if (digest != step.digest) {
      throw EngineError("RANK_DIVERGED", "step " + std::to_string(step.record.step) + ": rank " +
                                             std::to_string(slice.rank) +
                                             " computed another state than rank " +
                                             std::to_string(rank_) + " from the same record");
    }
    cursors_[i] = slice.frame.data() + kFrameHeader;
  }
}

const std::byte* HeadRunner::read_part(const std::byte* at, const Slice& slice, const Need& need,
                                       Summary& part, float* whole) const {
  float header[3];
  uint32_t count = 0;
  std::memcpy(header, at, sizeof(header));
  std::memcpy(&count, at + sizeof(header), sizeof(count));
  at += kPartHeader;
  part.part = {header[0], header[1]};
  part.target = header[2];
  part.best.clear();
  const size_t rows = static_cast<size_t>(slice.rows);
  if (need.whole) {
    std::memcpy(whole + slice.begin, at, rows * sizeof(float));
    return at + rows * sizeof(float);
  }
  const size_t expected = std::min(need.best, rows);
  if (count != expected) {
    throw EngineError("LINK_PROTOCOL", "rank " + std::to_string(slice.rank) + " sent " +
                                           std::to_string(count) + " candidates, not " +
                                           std::to_string(expected));
  }
  part.best.resize(count);
  std::memcpy(part.best.data(), at, count * sizeof(Candidate));
  // Ids become indices, and the order of candidates is none for NaN.
  for (const Candidate& candidate : part.best) {
    if (candidate.id < slice.begin || candidate.id >= slice.begin + slice.rows ||
        std::isnan(candidate.logit)) {
      throw EngineError("LINK_PROTOCOL",
                        "rank " + std::to_string(slice.rank) + " sent a candidate (token id " +
                            std::to_string(candidate.id) + ") that is none of its slice");
    }
  }
  return at + count * sizeof(Candidate);
}

// Gathers what all slices say about one output, in rank order, then answers it.
void HeadRunner::finish_output(const PlannedOutput& output, size_t in_window, const HeadStep& step,
                               OutputVerdict& verdict, ResultWriter& result) {
  const Need& need = needs_[in_window];
  best_.clear();
  parts_.clear();
  target_ = 0;
  for (size_t i = 0; i < slices_.size(); ++i) {
    const Slice& slice = slices_[i];
    Summary* part = &received_;
    if (i == mine_) {
      part = &summaries_[in_window];
      if (need.whole && slice.rows > 0) {
        const float* logits = program_.logits().data + static_cast<int64_t>(in_window) * slice.rows;
        std::copy(logits, logits + slice.rows, whole_.begin() + slice.begin);
      }
    } else {
      cursors_[i] = read_part(cursors_[i], slice, need, received_, whole_.data());
    }
    if (need.sum && slice.rows > 0) parts_.push_back(part->part);
    if (!need.whole) best_.insert(best_.end(), part->best.begin(), part->best.end());
    const int64_t target = static_cast<int64_t>(output.argument) - slice.begin;
    if (target >= 0 && target < slice.rows) target_ = part->target;
  }
  if (!need.whole && slices_.size() > 1) {
    std::sort(best_.begin(), best_.end());
    best_.resize(std::min(best_.size(), need.best));
  }
  if (need.whole && need.best > 0) top_candidates(whole_, 0, need.best, best_);

  result.word(static_cast<uint32_t>(output.want));
  result.word(0);
  if (output.want == Want::kLogits) {
    result.word(static_cast<uint32_t>(vocab_));
    result.numbers(whole_);
  } else if (output.want == Want::kScore) {
    result.word(best_.front().id);
    result.number(best_.size() > 1 ? best_[0].logit - best_[1].logit : 0);
    result.number(static_cast<float>(combine_log_sum(parts_)));
    result.number(target_);
    result.word(static_cast<uint32_t>(best_.size()));
    for (const Candidate& candidate : best_) {
      result.word(candidate.id);
      result.number(candidate.logit);
    }
  } else {
    finish_token(output, step, verdict, result);
  }
}

void HeadRunner::finish_token(const PlannedOutput& output, const HeadStep& step,
                              OutputVerdict& verdict, ResultWriter& result) {
  const Slot& slot = step.slots.live_slot(output.slot);
  const SamplerParams& params = *slot.sampler;
  const std::span<const uint32_t> history(slot.tokens.data(),
                                          static_cast<size_t>(output.position + 1));
  const uint32_t id = sampler_.draw(params, history, best_, whole_);
  verdict.token = true;
  verdict.id = id;
  if (std::find(params.stop_ids.begin(), params.stop_ids.end(), id) != params.stop_ids.end()) {
    verdict.finish = Finish::kStop;
  } else if (output.position + 2 >= static_cast<int64_t>(params.length_max)) {
    verdict.finish = Finish::kLength;
  }
  result.word(id);
  result.word(static_cast<uint32_t>(verdict.finish));
  const bool logprobs = !parts_.empty();
  const double log_sum = logprobs ? combine_log_sum(parts_) : 0;
  float own = 0;
  if (logprobs) {
    // The drawn token is a candidate, or the whole vocabulary is here.
    const auto found = std::find_if(best_.begin(), best_.end(), [id](const Candidate& candidate) {
      return candidate.id == id;
    });
    const float logit = found != best_.end() ? found->logit : whole_[id];
    own = static_cast<float>(static_cast<double>(logit) - log_sum);
  }
  result.number(own);
  const size_t top = logprobs ? std::min<size_t>(params.top_logprobs, best_.size()) : 0;
  result.word(static_cast<uint32_t>(top));
  for (size_t i = 0; i < top; ++i) {
    result.word(best_[i].id);
    result.number(static_cast<float>(static_cast<double>(best_[i].logit) - log_sum));
  }
}

}  // namespace coxswain::engine

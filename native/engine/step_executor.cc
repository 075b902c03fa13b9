#include "engine/step_executor.h"

#include <algorithm>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "engine/digest.h"

namespace coxswain::engine {
namespace {

constexpr int64_t kManyRows = 16;
// Verdicts that lie untaken on the link from the leader: they must fit into the smallest buffer of
// any transport, or the leader would wait for room and this rank for its next record.
constexpr size_t kVerdictBytesMax = 64 * 1024;
constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kPatienceMin = 2000 * kMillisecond;
// Before a step of its kind is measured: weights may still have to come from the disk.
constexpr int64_t kPatienceUnmeasured = 30'000 * kMillisecond;
constexpr int64_t kPatienceFactor = 8;
constexpr int64_t kUnmeasured = -1;
constexpr int64_t kSpinStep = 1 * kMillisecond;
constexpr int64_t kSpinShared = 20'000;

bool wants_tokens(const StepRecord& record) {
  return std::any_of(record.outputs.begin(), record.outputs.end(),
                     [](const Output& output) { return output.want == Want::kToken; });
}

uint32_t microseconds(int64_t ns) {
  return static_cast<uint32_t>(std::clamp<int64_t>(ns / 1000, 0, UINT32_MAX));
}

}  // namespace

StepExecutor::StepExecutor(const weights::ShardPlan& plan, const models::Model& model,
                           const Program& program, KvBlocks& kv, ThreadPool& pool,
                           const ExecutorOptions& options)
    : plan_(plan),
      program_(program),
      pool_(pool),
      options_(options),
      stage_(options.rank / plan.tp),
      leader_((plan.pp - 1) * plan.tp),
      kv_(kv),
      runner_(model, program, kv, pool, options.isa, options.context),
      slots_({options.slots, options.blocks, options.context}),
      planner_({options.rows, plan.shape.vocab}) {
  for (int index = 0; index < plan.tp; ++index) group_.push_back(stage_ * plan.tp + index);
  if (stage_ == plan.pp - 1) {
    head_ = std::make_unique<HeadRunner>(plan, options.rank, program, runner_, pool,
                                         kernels::kernels_for(options.isa));
  }
  const size_t rows = static_cast<size_t>(options.rows);
  batch_.ids.reserve(rows);
  batch_.positions.reserve(rows);
  batch_.kv_block.reserve(rows);
  batch_.kv_row.reserve(rows);
  batch_.output_rows.reserve(rows);
  batch_.cos.reserve(rows * static_cast<size_t>(model.n_rot / 2));
  batch_.sin.reserve(rows * static_cast<size_t>(model.n_rot / 2));
}

void StepExecutor::begin_epoch(std::unique_ptr<comm::DataPlane> plane, uint64_t first_step) {
  slots_.clear();
  verdicts_.clear(first_step);
  plane_ = std::move(plane);
  next_step_ = first_step;
  running_digest_ = 0;
  recent_ns_.fill(0);
}

void StepExecutor::check_sequence(const StepRecord& record) const {
  if (record.epoch != plane_->epoch()) {
    throw EngineError("STEP_INVALID", "a step of epoch " + std::to_string(record.epoch) +
                                          " came in epoch " + std::to_string(plane_->epoch()));
  }
  if (record.step != next_step_) {
    throw EngineError("STEP_INVALID", "step " + std::to_string(record.step) + " came where step " +
                                          std::to_string(next_step_) + " was due");
  }
}

std::vector<std::byte> StepExecutor::run(const StepRecord& record, std::span<const std::byte> bytes,
                                         const std::atomic<bool>& fence,
                                         std::atomic<uint32_t>& item) {
  const int64_t started = now_ns();
  const uint64_t waited_before = plane_->counters().wait_ns;
  check_sequence(record);
  step_ = record.step;
  ++next_step_;
  uint64_t rows_max = 0;
  for (const Run& run : record.runs) rows_max += run.n;
  predict(static_cast<int64_t>(rows_max));
  pool_.set_spin(options_.share_cores ? kSpinShared : kSpinStep);

  collect_verdicts(record, fence);
  planner_.plan(record, verdicts_, slots_, kv_, batch_, outputs_);
  runner_.prepare(batch_);
  const StepWait wait{patience_ns(), options_.share_cores ? kSpinShared : kSpinStep, record.step};
  runner_.run_trunk(batch_, *plane_, group_, wait, fence, item);

  Digest digest;
  digest.add(bytes);
  result_.begin(record.epoch, record.step);
  run_outputs(record, digest.value(), fence, result_);

  const int64_t waited = static_cast<int64_t>(plane_->counters().wait_ns - waited_before);
  const int64_t busy = std::max<int64_t>(now_ns() - started - waited, 0);
  measure(batch_.rows(), busy, busy + waited);
  predict(static_cast<int64_t>(rows_max));  // a peer may be in this step for a while yet
  const uint32_t answered =
      head_ != nullptr && head_->leads() ? static_cast<uint32_t>(record.outputs.size()) : 0;
  return result_.finish(answered, microseconds(busy), microseconds(waited));
}

// Before a step: the verdicts that its runs name, and those older than the steps in flight.
void StepExecutor::collect_verdicts(const StepRecord& record, const std::atomic<bool>& fence) {
  const comm::Wait wait = wait_for("verdict", fence);
  for (const Run& run : record.runs) {
    if (!run.from_output || run.from_step >= record.step) continue;
    while (verdicts_.is_waiting_for(run.from_step)) receive_verdict(wait);
  }
  const uint64_t in_flight = static_cast<uint64_t>(plan_.pp) + 1;
  while (verdicts_.waiting() && verdicts_.oldest_waiting() + in_flight < record.step)
    receive_verdict(wait);
}

void StepExecutor::receive_verdict(const comm::Wait& wait) {
  frame_.resize(verdicts_.oldest_bytes());
  plane_->recv(leader_, frame_, wait);
  verdicts_.accept(frame_);
}

void StepExecutor::run_outputs(const StepRecord& record, uint64_t record_digest,
                               const std::atomic<bool>& fence, ResultWriter& result) {
  const bool tokens = wants_tokens(record);
  if (head_ == nullptr) {
    if (!tokens) return;
    verdicts_.expect(record.step, record.outputs.size());
    while (verdicts_.waiting_bytes() > kVerdictBytesMax)
      receive_verdict(wait_for("verdict", fence));
    return;
  }
  // Steps without outputs leave their digest to the next step that has some.
  Digest digest;
  digest.add(running_digest_);
  digest.add(record_digest);
  digest.add(planner_.digest());
  const Operand& last = program_.hidden_outputs();
  digest.add(std::as_bytes(
      std::span<const float>(last.data, static_cast<size_t>(batch_.outputs() * last.width))));
  running_digest_ = digest.value();
  if (record.outputs.empty()) return;

  const HeadStep step{record,        batch_,         outputs_,
                      slots_,        *plane_,        wait_for("head", fence),
                      patience_ns(), running_digest_};
  if (head_->leads()) {
    std::vector<OutputVerdict>& verdict = verdicts_.open(record.step);
    head_->run(step, verdict, result);
    if (tokens) publish_verdict(record.step, verdict, wait_for("verdict", fence));
    return;
  }
  std::vector<OutputVerdict> none;
  head_->run(step, none, result);
  if (!tokens) return;
  // The leader's next frames to this rank are sums: the verdict is taken now.
  verdicts_.expect(record.step, record.outputs.size());
  receive_verdict(wait_for("verdict", fence));
}

void StepExecutor::publish_verdict(uint64_t step, const std::vector<OutputVerdict>& verdict,
                                   const comm::Wait& wait) {
  const int ranks = plan_.tp * plan_.pp;
  if (ranks == 1) return;
  Verdicts::encode(step, verdict, frame_);
  for (const int peer : group_) {
    if (peer != options_.rank) plane_->send(peer, frame_, wait);
  }
  for (int peer = 0; peer < stage_ * plan_.tp; ++peer) plane_->send(peer, frame_, wait);
}

comm::Wait StepExecutor::wait_for(const char* phase, const std::atomic<bool>& fence) const {
  comm::Wait wait;
  wait.deadline_ns = now_ns() + patience_ns();
  wait.spin_ns = options_.share_cores ? kSpinShared : kSpinStep;
  wait.fence = &fence;
  wait.step = step_;
  wait.phase = phase;
  return wait;
}

// A peer may still have to do every step in flight before it comes to this one, and no faster than
// the slowest rank lets it.
int64_t StepExecutor::patience_ns() const {
  int64_t predicted = 0;
  for (int back = 0; back <= plan_.pp + 1; ++back) {
    const int64_t recent = recent_ns_[(step_ - static_cast<uint64_t>(back)) % recent_ns_.size()];
    if (recent == kUnmeasured) return kPatienceUnmeasured;
    predicted += recent;
  }
  return std::max(kPatienceMin, kPatienceFactor * predicted);
}

void StepExecutor::predict(int64_t rows) {
  const RowTime& time = row_time(rows);
  const int64_t row_ns = std::max(time.busy_ns, time.whole_ns);
  recent_ns_[step_ % recent_ns_.size()] = rows == 0       ? 0
                                          : time.measured ? rows * row_ns
                                                          : kUnmeasured;
}

void StepExecutor::measure(int64_t rows, int64_t busy_ns, int64_t whole_ns) {
  if (rows == 0) return;
  RowTime& time = row_time(rows);
  const int64_t busy = busy_ns / rows;
  const int64_t whole = whole_ns / rows;
  // Follows slow steps at once and forgets them slowly.
  time.busy_ns = std::max(busy, time.busy_ns - time.busy_ns / 8 + busy / 8);
  // What others do is a mean: one hitch of a peer must not make the next one invisible.
  time.whole_ns = time.measured ? time.whole_ns - time.whole_ns / 4 + whole / 4 : whole;
  time.measured = true;
}

StepExecutor::RowTime& StepExecutor::row_time(int64_t rows) {
  return row_times_[rows < kManyRows ? 0 : 1];
}

}  // namespace coxswain::engine

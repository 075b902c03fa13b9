// Engine: loads a shard, owns the executor thread and its queue, turns failures into events.
//
// States of the executor: no epoch -> running -> (failed | fenced) -> running ... A failed engine
// answers every further record with the failure's code until the next epoch; a fenced one drops
// them. Locks: mutex_ guards the queue and the state; a step runs without it.
#include "engine/engine.h"

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <mutex>
#include <new>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "engine/spin.h"
#include "engine/step_executor.h"
#include "models/dense.h"

namespace coxswain::engine {
namespace {

constexpr size_t kQueueMax = weights::kStagesMax + 1;  // the steps in flight
constexpr int64_t kSpinBetweenSteps = 50'000;
// A transfer leaves after the chunk at hand; a disk that takes longer is stuck.
constexpr std::chrono::seconds kTransfersLeave{10};

uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size = 0;
  uint64_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void check_options(const EngineOptions& options) {
  const auto require = [](bool ok, const std::string& text) {
    if (!ok) throw EngineError("CONFIG_INVALID", text);
  };
  require(options.threads >= 1 && options.threads <= 256, "threads must be between 1 and 256");
  require(options.kv_blocks >= 1 && options.kv_blocks <= UINT32_MAX,
          "kv_blocks must be at least 1");
  require(options.slots_max >= 1 && options.slots_max <= 65536,
          "slots_max must be between 1 and 65536");
  require(options.step_rows_max >= 1 && options.step_rows_max <= 65536,
          "step_rows_max must be between 1 and 65536");
  require(options.topology.kv_type <= 1, "the KV type must be f32 or f16");
}

class RunningEngine final : public Engine {
 public:
  RunningEngine(const EngineOptions& options, std::function<void(EngineEvent)> on_event)
      : options_(options), on_event_(std::move(on_event)) {
    const int64_t started = now_ns();
    check_options(options);
    isa_ = kernels::choose_isa();
    file_ = weights::GgufFile::open(options.path);
    plan_ = weights::make_plan(*file_, options.topology);
    if (plan_.refused) throw EngineError("PLAN_IMPOSSIBLE", *plan_.refused);
    if (options.rank < 0 || options.rank >= static_cast<int>(plan_.ranks.size())) {
      throw EngineError("PLAN_IMPOSSIBLE", "rank " + std::to_string(options.rank) +
                                               " of a plan for " +
                                               std::to_string(plan_.ranks.size()));
    }
    const int64_t context =
        options.topology.context > 0 ? options.topology.context : plan_.shape.context;
    pool_ = std::make_unique<ThreadPool>(options.threads, kSpinBetweenSteps);
    model_ = models::build_dense(*file_, plan_, options.rank);
    weights_ = std::make_unique<WeightStore>(*file_, model_, *pool_);
    program_ = std::make_unique<Program>(model_, *weights_, options.step_rows_max);
    kv_ = std::make_unique<KvBlocks>(
        KvGeometry{model_.layers, model_.kv_heads, model_.head_dim, options.kv_blocks,
                   static_cast<kernels::KvType>(options.topology.kv_type)},
        *pool_);
    steps_ = std::make_unique<StepExecutor>(
        plan_, model_, *program_, *kv_, *pool_,
        ExecutorOptions{options.rank, options.slots_max, options.kv_blocks, options.step_rows_max,
                        context, options.share_cores, isa_});
    info_.fingerprint = file_->fingerprint();
    info_.plan_hash = plan_.hash;
    info_.numerics_id = std::string("cpu2-") + (options.topology.exact ? "exact" : "a8");
    info_.isa = kernels::isa_name(isa_);
    info_.weight_bytes = plan_.ranks[static_cast<size_t>(options.rank)].weight_bytes;
    info_.kv_bytes = kv_->bytes();
    info_.resident_bytes = resident_bytes();
    info_.context = context;
    info_.vocab = plan_.shape.vocab;
    info_.load_ms = static_cast<double>(now_ns() - started) / 1e6;
    thread_ = std::thread([this] { execute(); });
  }

  ~RunningEngine() override {
    fence_.store(true);
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      queue_.clear();
    }
    signal_.fetch_add(1);
    signal_.notify_all();
    thread_.join();
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return transfers_ == 0; });
  }

  const EngineInfo& info() const override { return info_; }

  void begin_epoch(std::unique_ptr<comm::DataPlane> plane, uint64_t first_step) override {
    fence();
    std::unique_lock lock(mutex_);
    // Transfers of the epoch before see the number change and leave; until then blocks are theirs.
    epoch_.store(plane->epoch());
    if (!idle_.wait_for(lock, kTransfersLeave, [this] { return transfers_ == 0; })) {
      throw EngineError("RANK_STALLED",
                        "pages of the epoch before are still under way: the disk does not answer");
    }
    step_.store(first_step);
    steps_->begin_epoch(std::move(plane), first_step);
    failure_.reset();
    counters_ = {};
    fence_.store(false);
  }

  void submit(std::vector<std::byte> record) override {
    {
      const std::lock_guard lock(mutex_);
      if (fence_.load()) return;
      if (queue_.size() >= kQueueMax) {
        overflow_ = true;
      } else {
        queue_.push_back(std::move(record));
      }
    }
    signal_.fetch_add(1);
    signal_.notify_one();
  }

  void fence() override {
    fence_.store(true);
    std::unique_lock lock(mutex_);
    queue_.clear();
    // Else the executor could take it up after this, beside a begin_epoch.
    overflow_ = false;
    idle_.wait(lock, [this] { return !busy_.load(); });
  }

  std::atomic<bool>& fence_flag() override { return fence_; }

  void save_pages(uint64_t epoch, PageFile& file, std::span<const uint32_t> blocks) override {
    const Transfer transfer(*this, epoch);
    write_pages(*kv_, file, blocks, [&] { transfer.check(); });
  }

  void load_pages(uint64_t epoch, const PageFile& file, const PageBox& box,
                  std::span<const uint32_t> blocks) override {
    const Transfer transfer(*this, epoch);
    read_pages(*kv_, file, box, blocks, [&] { transfer.check(); });
  }

  Progress progress() const override {
    return {epoch_.load(std::memory_order_relaxed), step_.load(std::memory_order_relaxed),
            item_.load(std::memory_order_relaxed), busy_.load(std::memory_order_relaxed)};
  }

  comm::DataPlane::Counters counters() const override {
    const std::lock_guard lock(mutex_);
    return counters_;
  }

 private:
  // Counts one transfer of pages for as long as it lives.
  class Transfer {
   public:
    Transfer(RunningEngine& engine, uint64_t epoch) : engine_(engine), epoch_(epoch) {
      const std::lock_guard lock(engine.mutex_);
      check();
      ++engine.transfers_;
    }
    ~Transfer() {
      {
        const std::lock_guard lock(engine_.mutex_);
        --engine_.transfers_;
      }
      engine_.idle_.notify_all();
    }
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;
    void check() const {
      if (engine_.epoch_.load() == epoch_ && !engine_.fence_.load()) return;
      throw EngineError("EPOCH_FENCED", "pages of epoch " + std::to_string(epoch_) +
                                            " were asked for in another or after its fence");
    }

   private:
    RunningEngine& engine_;
    uint64_t epoch_;
  };

  void execute() {
    std::vector<std::byte> record;
    while (take(record)) {
      execute_one(record);
      pool_->set_spin(kSpinBetweenSteps);
      {
        const std::lock_guard lock(mutex_);
        if (steps_->in_epoch()) counters_ = steps_->plane()->counters();
        busy_.store(false);
      }
      idle_.notify_all();
    }
    steps_->end_epoch();
  }

  // Waits for a record; false at the end of the engine's life. Sets busy_.
  bool take(std::vector<std::byte>& record) {
    for (;;) {
      const uint32_t seen = signal_.load();
      {
        const std::lock_guard lock(mutex_);
        if (stop_) return false;
        if (overflow_) {
          overflow_ = false;
          record.clear();
          busy_.store(true);
          return true;
        }
        if (!queue_.empty()) {
          record = std::move(queue_.front());
          queue_.pop_front();
          busy_.store(true);
          return true;
        }
      }
      Spin spin;
      while (signal_.load(std::memory_order_relaxed) == seen) {
        if (!spin.again(kSpinBetweenSteps)) signal_.wait(seen);
      }
    }
  }

  void execute_one(const std::vector<std::byte>& bytes) {
    uint64_t step = step_.load();
    try {
      if (bytes.empty()) {
        throw EngineError("STEP_INVALID", "more than " + std::to_string(kQueueMax) + " steps wait");
      }
      decode_step_record(bytes, record_);
      const StepRecord& record = record_;
      step = record.step;
      if (failure_) {
        throw EngineError(failure_->code(), "step refused, because an earlier step failed: " +
                                                std::string(failure_->what()));
      }
      if (!steps_->in_epoch())
        throw EngineError("STEP_INVALID", "a step came before any epoch began");
      step_.store(step, std::memory_order_relaxed);
      item_.store(0, std::memory_order_relaxed);
      std::vector<std::byte> result = steps_->run(record, bytes, fence_, item_);
      if (fence_.load()) return;
      on_event_({EngineEvent::Kind::kResult, record.epoch, step, std::move(result), "", ""});
    } catch (const EngineError& error) {
      fail(step, error);
    } catch (const std::bad_alloc&) {
      fail(step, EngineError("MEMORY_EXHAUSTED",
                             "this rank ran out of memory in step " + std::to_string(step)));
    }
  }

  void fail(uint64_t step, const EngineError& error) {
    // A fence is the controller's own doing: it hears of it from fence() itself.
    if (fence_.load()) return;
    if (!failure_) failure_ = error;
    on_event_({EngineEvent::Kind::kFailed, epoch_.load(), step, {}, error.code(), error.what()});
  }

  EngineOptions options_;
  std::function<void(EngineEvent)> on_event_;
  EngineInfo info_{};
  kernels::Isa isa_ = kernels::Isa::kScalar;
  std::shared_ptr<const weights::GgufFile> file_;
  weights::ShardPlan plan_;
  std::unique_ptr<ThreadPool> pool_;
  models::Model model_;
  std::unique_ptr<WeightStore> weights_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<KvBlocks> kv_;
  std::unique_ptr<StepExecutor> steps_;

  std::atomic<bool> fence_{false};
  std::atomic<bool> busy_{false};
  std::atomic<uint64_t> epoch_{0}, step_{0};
  std::atomic<uint32_t> item_{0};
  std::atomic<uint32_t> signal_{0};
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::deque<std::vector<std::byte>> queue_;
  bool stop_ = false, overflow_ = false;
  int transfers_ = 0;                   // of pages, under way
  StepRecord record_;                   // executor thread
  std::optional<EngineError> failure_;  // executor thread, and begin_epoch while it is idle
  comm::DataPlane::Counters counters_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Engine> Engine::load(const EngineOptions& options,
                                     std::function<void(EngineEvent)> on_event) {
  return std::make_unique<RunningEngine>(options, std::move(on_event));
}

}  // namespace coxswain::engine

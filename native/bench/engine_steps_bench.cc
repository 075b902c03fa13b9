// Speed of whole steps on one rank: prefill of P tokens, then N decoded one by one (a8, F16 cache).
//   engine_steps_bench MODEL [threads 1] [prefill 512] [decode 64] [runs 3]
// Prints one line a run: tokens per second, and per second of processor time (all threads together,
// spinning included), which other work on the machine disturbs less. Tokens are arbitrary ids,
// sampling is greedy.
#include <time.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/clock.h"
#include "engine/engine.h"

namespace {

using namespace coxswain;

struct Mark {
  int64_t wall_ns = now_ns();
  int64_t cpu_ns = cpu_now();
  static int64_t cpu_now() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1'000'000'000 + now.tv_nsec;
  }
};
struct Speed {
  double wall = 0, cpu = 0;
};
Speed speed(int64_t tokens, const Mark& from, const Mark& to) {
  const double count = static_cast<double>(tokens) * 1e9;
  return {count / static_cast<double>(to.wall_ns - from.wall_ns),
          count / static_cast<double>(to.cpu_ns - from.cpu_ns)};
}

class Words {
 public:
  Words& add(uint32_t word) {
    bytes_.resize(bytes_.size() + 4);
    std::memcpy(bytes_.data() + bytes_.size() - 4, &word, 4);
    return *this;
  }
  Words& wide(uint64_t value) {
    return add(static_cast<uint32_t>(value)).add(static_cast<uint32_t>(value >> 32));
  }
  Words& number(float value) {
    uint32_t word = 0;
    std::memcpy(&word, &value, 4);
    return add(word);
  }
  Words& header(uint64_t step, uint32_t ops, uint32_t runs, uint32_t outputs) {
    return add(0x31535843).wide(1).wide(step).add(ops).add(runs).add(outputs);
  }
  std::vector<std::byte> bytes_;
};

class Bench {
 public:
  explicit Bench(const engine::EngineOptions& options) {
    engine_ = engine::Engine::load(options, [this](engine::EngineEvent event) {
      const std::lock_guard lock(mutex_);
      if (event.kind == engine::EngineEvent::Kind::kFailed) {
        std::fprintf(stderr, "%s: %s\n", event.code.c_str(), event.message.c_str());
        std::exit(1);
      }
      done_ = event.step;
      changed_.notify_all();
    });
    blocks_ = static_cast<uint32_t>(options.kv_blocks);
    engine_->begin_epoch(comm::make_solo_plane(1), 1);
  }

  std::pair<Speed, Speed> run(uint32_t rows, uint32_t decode) {
    Words create;
    create.header(next_, 2, 0, 0).add(1).add(0).add(0).add(blocks_).add(0);
    for (uint32_t block = 0; block < blocks_; ++block) create.add(block);
    create.add(6).add(0).number(0).add(0).number(1).number(0).number(1).number(0).number(0);
    create.wide(0).add(0).add(rows).add(1u << 30).add(0).add(0).add(0).add(0);
    for (int reserved = 0; reserved < 6; ++reserved) create.add(0);
    submit(create);
    wait(next_ - 1);
    const Mark started;
    Words prefill;
    prefill.header(next_, 0, 1, 1).add(0).add(0).add(rows).add(0);
    for (uint32_t i = 0; i < rows; ++i) prefill.add((i * 7919 + 13) % 500);
    prefill.add(rows - 1).add(1).add(0);
    submit(prefill);
    wait(next_ - 1);
    const Mark filled;
    for (uint32_t i = 0; i < decode; ++i) {
      Words step;
      step.header(next_, 0, 1, 1).add(0).add(rows + i).add(1).add(1).wide(next_ - 1).add(0);
      step.add(0).add(1).add(0);
      submit(step);
      if (i >= 2) wait(next_ - 3);
    }
    wait(next_ - 1);
    const Mark decoded;
    Words drop;
    drop.header(next_, 1, 0, 0).add(4).add(0);
    submit(drop);
    wait(next_ - 1);
    return {speed(rows, started, filled), speed(decode, filled, decoded)};
  }

 private:
  void submit(const Words& words) {
    engine_->submit(words.bytes_);
    ++next_;
  }
  void wait(uint64_t step) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= step; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t done_ = 0, next_ = 1;
  uint32_t blocks_ = 0;
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "engine_steps_bench MODEL [threads] [prefill] [decode] [runs]\n");
    return 2;
  }
  const auto argument = [&](int index, int fallback) {
    return argc > index ? std::atoi(argv[index]) : fallback;
  };
  engine::EngineOptions options;
  options.path = argv[1];
  options.topology.split = {1};
  options.threads = argument(2, 1);
  const int rows = argument(3, 512);
  const int decode = argument(4, 64);
  options.kv_blocks = (rows + decode) / 256 + 1;
  Bench bench(options);
  for (int i = 0; i < argument(5, 3); ++i) {
    const auto [prefill, decoded] =
        bench.run(static_cast<uint32_t>(rows), static_cast<uint32_t>(decode));
    std::printf("threads %d: prefill %d at %.1f tok/s (%.1f a cpu second), ", options.threads, rows,
                prefill.wall, prefill.cpu);
    std::printf("decode %d at %.1f tok/s (%.1f)\n", decode, decoded.wall, decoded.cpu);
  }
  return 0;
}

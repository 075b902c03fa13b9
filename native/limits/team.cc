#include "limits/team.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace coxswain::limits {
namespace {

// All threads pass a gate together. They yield while they wait: there may be more of them than
// cores.
class Gate {
 public:
  explicit Gate(int threads) : threads_(threads) {}
  void pass() {
    const int64_t ticket = arrived_.fetch_add(1);
    const int64_t wanted = (ticket / threads_ + 1) * threads_;
    while (arrived_.load() < wanted) std::this_thread::yield();
  }

 private:
  const int64_t threads_;
  std::atomic<int64_t> arrived_{0};
};

struct Span {
  int64_t start, end;
};

}  // namespace

int64_t fastest_round(int threads, int rounds, const std::function<void(int)>& prepare,
                      const std::function<void(int)>& work) {
  Gate gate(threads);
  std::vector<std::vector<Span>> spans(static_cast<size_t>(threads));
  const auto run = [&](int thread) {
    auto& mine = spans[static_cast<size_t>(thread)];
    mine.reserve(static_cast<size_t>(rounds));
    prepare(thread);
    for (int round = 0; round < rounds; ++round) {
      gate.pass();
      const int64_t start = now_ns();
      work(thread);
      mine.push_back({start, now_ns()});
    }
  };
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  run(0);
  for (std::thread& other : others) other.join();
  int64_t best = std::numeric_limits<int64_t>::max();
  for (size_t round = 0; round < static_cast<size_t>(rounds); ++round) {
    Span all = spans[0][round];
    for (const auto& mine : spans) {
      all.start = std::min(all.start, mine[round].start);
      all.end = std::max(all.end, mine[round].end);
    }
    best = std::min(best, all.end - all.start);
  }
  return std::max<int64_t>(best, 1);
}

}  // namespace coxswain::limits

// The pool does every piece of every job exactly once, however jobs follow each other.
#include "engine/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "check.h"

using coxswain::engine::ThreadPool;

namespace {

void does_every_piece_once(int threads, int64_t spin_ns) {
  ThreadPool pool(threads, spin_ns);
  std::vector<int> done;
  bool all_once = true;
  for (int job = 0; job < 300; ++job) {
    const int64_t pieces = job % 37;
    done.assign(static_cast<size_t>(pieces), 0);
    std::atomic<int> threads_seen_wrong{0};
    pool.run(pieces, [&](int64_t piece, int thread) {
      if (thread < 0 || thread >= threads) threads_seen_wrong.fetch_add(1);
      done[static_cast<size_t>(piece)] += 1;
    });
    all_once = all_once && threads_seen_wrong == 0;
    for (const int count : done) all_once = all_once && count == 1;
  }
  CHECK(all_once);
}

void wakes_sleeping_workers() {
  ThreadPool pool(3, 1000);
  for (int job = 0; job < 5; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int64_t> sum{0};
    pool.run(100, [&](int64_t piece, int) { sum.fetch_add(piece); });
    CHECK(sum == 4950);
  }
}

void goes_on_when_a_worker_is_slow() {
  ThreadPool pool(2, 1000);
  std::atomic<int> done{0};
  pool.run(8, [&](int64_t piece, int) {
    if (piece == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done.fetch_add(1);
  });
  CHECK(done == 8);
}

// More pieces than one ticket has room for.
void does_millions_of_pieces_once() {
  ThreadPool pool(3, 20'000);
  constexpr int64_t kPieces = 2'500'000;
  std::vector<uint8_t> done(kPieces, 0);
  pool.run(kPieces, [&](int64_t piece, int) { done[static_cast<size_t>(piece)] += 1; });
  CHECK(std::all_of(done.begin(), done.end(), [](uint8_t count) { return count == 1; }));
}

}  // namespace

int main() {
  for (const int threads : {1, 2, 3, 5}) {
    does_every_piece_once(threads, 0);
    does_every_piece_once(threads, 20'000);
  }
  wakes_sleeping_workers();
  goes_on_when_a_worker_is_slow();
  does_millions_of_pieces_once();
  return coxswain::testing::finish("engine_thread_pool_test");
}

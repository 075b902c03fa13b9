// The suite that every transport of the data plane passes. A transport brings a factory of planes
// that know each other (one a rank, full mesh); ranks are threads.
#pragma once
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "comm/comm.h"
#include "tests/check.h"

namespace coxswain::comm::testing {

// One a rank, and what must live as long as they do.
struct Planes : std::vector<std::unique_ptr<DataPlane>> {
  std::shared_ptr<void> keeper;
};
using MakePlanes = std::function<Planes(int count)>;

inline Wait wait_ms(int64_t ms, uint64_t step = 1) {
  Wait wait;
  wait.deadline_ns = now_ns() + ms * 1'000'000;
  wait.step = step;
  wait.layer = 7;
  wait.phase = "attention";
  return wait;
}

// What an action threw: "CODE: sentence", or "" when it succeeded.
inline std::string failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const EngineError& error) {
    return error.code() + ": " + error.what();
  }
  return "";
}

inline bool begins(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Prints a sentence that is not what was hoped for; returns whether it was.
inline bool expect_text(const std::string& got, bool ok) {
  if (!ok) std::fprintf(stderr, "  got: %s\n", got.c_str());
  return ok;
}

// Runs one rank a thread; returns what each threw.
inline std::vector<std::string> run_ranks(Planes& planes,
                                          const std::function<void(DataPlane&)>& body) {
  std::vector<std::string> failures(planes.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < planes.size(); ++i) {
    threads.emplace_back([&, i] { failures[i] = failure_of([&] { body(*planes[i]); }); });
  }
  for (auto& thread : threads) thread.join();
  return failures;
}

inline bool all_fine(const std::vector<std::string>& failures) {
  bool fine = true;
  for (const std::string& failure : failures) fine &= expect_text(failure, failure.empty());
  return fine;
}

// all_reduce of floats: data becomes the sum.
inline void reduce(DataPlane& plane, const std::vector<int>& group, std::vector<float>& data,
                   const Wait& wait) {
  const std::vector<double> partials(data.begin(), data.end());
  plane.all_reduce(group, partials, data, wait);
}

// Values whose sum depends on the order of addition.
inline double partial_of(int rank, size_t i, uint64_t round) {
  uint64_t x = (static_cast<uint64_t>(rank) << 40) ^ (round << 20) ^ i;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  const double mantissa =
      static_cast<double>(static_cast<int64_t>(x & 0xfffffffffffffull) - 0x8000000000000ll);
  // Neighbours nearly cancel, so that the rounding of large intermediate sums shows in the float.
  const double large = rank % 2 == 0 ? 0x1p44 : -0x1p44;
  return large + std::ldexp(mantissa, static_cast<int>((x >> 52) % 24) - 60);
}

// The naive twin: ((p0 + p1) + p2) + ..., rounded once.
inline float sum_of(const std::vector<int>& group, size_t i, uint64_t round) {
  double sum = partial_of(group[0], i, round);
  for (size_t g = 1; g < group.size(); ++g) sum += partial_of(group[g], i, round);
  return static_cast<float>(sum);
}

inline bool reduces_like_the_twin(DataPlane& plane, const std::vector<int>& group, size_t count,
                                  uint64_t round) {
  std::vector<double> partials(count);
  std::vector<float> data(count);
  for (size_t i = 0; i < count; ++i) partials[i] = partial_of(plane.rank(), i, round);
  plane.all_reduce(group, partials, data, wait_ms(60'000, round));
  for (size_t i = 0; i < count; ++i) {
    const float expected = sum_of(group, i, round);
    if (std::memcmp(&data[i], &expected, sizeof expected) != 0) return false;
  }
  return true;
}

inline std::vector<int> ranks_to(int count) {
  std::vector<int> group(static_cast<size_t>(count));
  std::iota(group.begin(), group.end(), 0);
  return group;
}

inline void sums_have_the_bits_of_the_twin(const MakePlanes& make) {
  const std::vector<size_t> sizes = {1,    2,    3,    15,     16,      17, 576, 4095,   8191,
                                     8192, 8193, 8195, 65'537, 300'007, 1,  576, 786'432};
  for (int count = 1; count <= 4; ++count) {
    Planes planes = make(count);
    std::atomic<int> wrong{0};
    const auto failures = run_ranks(planes, [&](DataPlane& plane) {
      uint64_t round = 0;
      for (const size_t size : sizes) {
        wrong += reduces_like_the_twin(plane, ranks_to(count), size, ++round) ? 0 : 1;
      }
      if (count > 1) CHECK(plane.counters().collectives == sizes.size());
    });
    CHECK(all_fine(failures));
    CHECK(wrong == 0);
  }
}

inline void groups_sum_among_themselves(const MakePlanes& make) {
  Planes planes = make(4);
  std::atomic<int> wrong{0};
  const auto failures = run_ranks(planes, [&](DataPlane& plane) {
    const std::vector<int> group =
        plane.rank() % 2 == 0 ? std::vector<int>{0, 2} : std::vector<int>{1, 3};
    for (uint64_t round = 0; round < 20; ++round) {
      wrong += reduces_like_the_twin(plane, group, 100 + round * 1000, round) ? 0 : 1;
    }
  });
  CHECK(all_fine(failures));
  CHECK(wrong == 0);
}

inline std::vector<std::byte> pattern(size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 31 + seed) & 0xff);
  return bytes;
}

inline void messages_arrive_in_order(const MakePlanes& make) {
  Planes planes = make(3);
  const std::vector<size_t> sizes = {0, 1, 63, 64, 65, 4096, 100'001, 5'000'000, 7};
  const auto failures = run_ranks(planes, [&](DataPlane& plane) {
    const int next = (plane.rank() + 1) % 3;
    const int previous = (plane.rank() + 2) % 3;
    for (unsigned i = 0; i < sizes.size(); ++i) {
      // Rank 0 starts the circle, so that no two wait for each other with full buffers.
      if (plane.rank() == 0) plane.send(next, pattern(sizes[i], i), wait_ms(60'000));
      std::vector<std::byte> got(sizes[i]);
      plane.recv(previous, got, wait_ms(60'000));
      CHECK(got == pattern(sizes[i], i));
      if (plane.rank() != 0) plane.send(next, got, wait_ms(60'000));
    }
  });
  CHECK(all_fine(failures));
}

inline void small_messages_wait_until_taken(const MakePlanes& make) {
  Planes planes = make(2);
  const auto failures = run_ranks(planes, [&](DataPlane& plane) {
    const int peer = 1 - plane.rank();
    for (unsigned i = 0; i < 50; ++i) plane.send(peer, pattern(100, i), wait_ms(60'000));
    // A large message passes although the peer's small ones still lie unread.
    if (plane.rank() == 0) plane.send(peer, pattern(9'000'000, 5), wait_ms(60'000));
    const auto take = [&](size_t bytes) {
      std::vector<std::byte> got(bytes);
      plane.recv(peer, got, wait_ms(60'000));
      return got;
    };
    for (unsigned i = 0; i < 50; ++i) CHECK(take(100) == pattern(100, i));
    if (plane.rank() == 1) CHECK(take(9'000'000) == pattern(9'000'000, 5));
  });
  CHECK(all_fine(failures));
}

inline void wrong_sizes_are_refused(const MakePlanes& make) {
  {
    Planes planes = make(2);
    const auto failures = run_ranks(planes, [&](DataPlane& plane) {
      if (plane.rank() == 0) return plane.send(1, pattern(100, 0), wait_ms(60'000));
      std::vector<std::byte> got(96);
      plane.recv(0, got, wait_ms(60'000));
    });
    CHECK(failures[0].empty());
    CHECK(expect_text(failures[1], begins(failures[1], "LINK_PROTOCOL: rank 0 sent 100 bytes")));
    // The stream is out of step now: the plane keeps failing and says why.
    const std::string again = failure_of([&] { planes[1]->send(0, pattern(1, 0), wait_ms(1000)); });
    CHECK(again == failures[1]);
  }
  Planes planes = make(2);
  const auto failures = run_ranks(planes, [&](DataPlane& plane) {
    std::vector<float> data(plane.rank() == 0 ? 10 : 11);
    reduce(plane, ranks_to(2), data, wait_ms(2000));
  });
  CHECK(expect_text(failures[1], begins(failures[1],
                                        "LINK_PROTOCOL: rank 0 brings 80 bytes to a "
                                        "sum of 88")));
}

inline void ranks_in_different_places_are_told_apart(const MakePlanes& make) {
  Planes planes = make(2);
  const auto failures = run_ranks(planes, [&](DataPlane& plane) {
    std::vector<float> data(10);
    Wait wait = wait_ms(2000, 812);
    wait.layer = 7 + plane.rank();
    reduce(plane, ranks_to(2), data, wait);
  });
  CHECK(expect_text(failures[0], begins(failures[0],
                                        "LINK_PROTOCOL: rank 0 got from rank 1 a partial "
                                        "sum of step 812, layer 8")));
}

inline void strangers_to_the_group_are_refused(const MakePlanes& make) {
  Planes planes = make(2);
  std::vector<float> data(4);
  const std::vector<int> strange = {0, 5};
  CHECK(contains(failure_of([&] { reduce(*planes[0], strange, data, wait_ms(100)); }),
                 "rank 0 has no link to rank 5"));
  CHECK(begins(failure_of([&] { planes[1]->send(1, pattern(1, 0), wait_ms(100)); }),
               "LINK_PROTOCOL"));
}

inline void a_silent_peer_is_named(const MakePlanes& make) {
  Planes planes = make(2);
  std::vector<float> data(576);
  const int64_t start = now_ns();
  Wait wait = wait_ms(300, 812);
  const std::string sum = failure_of([&] { reduce(*planes[1], ranks_to(2), data, wait); });
  const int64_t took_ms = (now_ns() - start) / 1'000'000;
  const std::string tail = " ms for rank 0 in step 812, layer 7, attention (epoch " +
                           std::to_string(planes[1]->epoch()) + ", 0 of 4608 bytes)";
  CHECK(expect_text(sum, begins(sum, "LINK_TIMEOUT: rank 1 waited ") && contains(sum, tail)));
  CHECK(took_ms >= 300 && took_ms < 3000);
}

inline void a_peer_that_takes_nothing_is_named(const MakePlanes& make) {
  Planes planes = make(2);
  const auto big = pattern(64'000'000, 1);
  const std::string sent = failure_of([&] { planes[0]->send(1, big, wait_ms(300)); });
  CHECK(expect_text(sent, begins(sent, "LINK_TIMEOUT: rank 0 waited ") &&
                              contains(sent, " ms for rank 1 to take bytes in step 1, layer 7") &&
                              contains(sent, " of 64000000 bytes)")));
}

inline void the_absent_rank_is_accused_not_the_present_one(const MakePlanes& make) {
  for (const size_t count : {size_t{100}, size_t{100'000}}) {
    Planes planes = make(3);
    std::vector<std::string> failures(3);
    std::vector<std::thread> threads;
    for (const size_t rank : {size_t{0}, size_t{1}}) {
      threads.emplace_back([&, rank] {
        std::vector<float> data(count);
        failures[rank] =
            failure_of([&] { reduce(*planes[rank], ranks_to(3), data, wait_ms(400)); });
      });
    }
    for (auto& thread : threads) thread.join();
    CHECK(expect_text(failures[0], contains(failures[0], "ms for rank 2 ")));
    CHECK(expect_text(failures[1], contains(failures[1], "ms for rank 2 ")));
  }
}

inline void a_fence_ends_a_wait_within_50_ms(const MakePlanes& make) {
  for (const int64_t spin_ns : {int64_t{0}, int64_t{20'000}, int64_t{10'000'000'000}}) {
    Planes planes = make(2);
    std::atomic<bool> fence{false};
    std::atomic<int64_t> left_at{0};
    std::string failure;
    std::thread waiting([&] {
      std::vector<float> data(576);
      Wait wait = wait_ms(20'000);
      wait.fence = &fence;
      wait.spin_ns = spin_ns;
      failure = failure_of([&] { reduce(*planes[0], ranks_to(2), data, wait); });
      left_at = now_ns();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    const int64_t fenced_at = now_ns();
    fence = true;
    waiting.join();
    CHECK(expect_text(failure, begins(failure, "EPOCH_FENCED: rank 0 left its work")));
    // 50 ms is the rule; the rest is room for a busy machine.
    CHECK(left_at - fenced_at < 250'000'000);
  }
}

inline void a_closed_plane_is_noticed_after_its_last_bytes(const MakePlanes& make) {
  Planes planes = make(2);
  planes[0]->send(1, pattern(1000, 3), wait_ms(1000));
  planes[0].reset();
  std::vector<std::byte> got(1000);
  CHECK(failure_of([&] { planes[1]->recv(0, got, wait_ms(5000)); }).empty());
  CHECK(got == pattern(1000, 3));
  const int64_t start = now_ns();
  const std::string failure = failure_of([&] { planes[1]->recv(0, got, wait_ms(20'000, 812)); });
  CHECK(expect_text(failure, begins(failure, "LINK_CLOSED: rank 1 lost rank 0 in step 812")));
  CHECK(now_ns() - start < 1'000'000'000);
}

// With pure spinning this takes minutes; the bound only tells collapse from work.
inline void more_ranks_than_cores_do_not_collapse(const MakePlanes& make, int rounds) {
  Planes planes = make(4);
  const int64_t start = now_ns();
  const auto failures = run_ranks(planes, [&](DataPlane& plane) {
    const std::vector<int> group = ranks_to(4);
    std::vector<float> data(576, 1.0f);
    for (int i = 0; i < rounds; ++i) {
      data.assign(576, 1.0f);
      reduce(plane, group, data, wait_ms(60'000, static_cast<uint64_t>(i)));
      if (data[575] != 4.0f) throw EngineError("WRONG_SUM", std::to_string(data[575]));
    }
  });
  CHECK(all_fine(failures));
  const int64_t took_ms = (now_ns() - start) / 1'000'000;
  std::printf("  %d all-reduces of 576 values, 4 ranks: %lld ms\n", rounds,
              static_cast<long long>(took_ms));
  CHECK(took_ms < 60'000);
}

inline void run_conformance(const char* name, const MakePlanes& make, int crowded_rounds) {
  const int64_t start = now_ns();
  sums_have_the_bits_of_the_twin(make);
  groups_sum_among_themselves(make);
  messages_arrive_in_order(make);
  small_messages_wait_until_taken(make);
  wrong_sizes_are_refused(make);
  ranks_in_different_places_are_told_apart(make);
  strangers_to_the_group_are_refused(make);
  a_silent_peer_is_named(make);
  a_peer_that_takes_nothing_is_named(make);
  the_absent_rank_is_accused_not_the_present_one(make);
  a_fence_ends_a_wait_within_50_ms(make);
  a_closed_plane_is_noticed_after_its_last_bytes(make);
  more_ranks_than_cores_do_not_collapse(make, crowded_rounds);
  std::printf("  conformance of %s: %lld ms\n", name,
              static_cast<long long>((now_ns() - start) / 1'000'000));
}

}  // namespace coxswain::comm::testing

// Whole engines in one process over fake planes: shards agree with one rank, finished rows are
// skipped everywhere, and every failure is an event that leaves the engine ready for a new epoch.
#include <chrono>
#include <cmath>
#include <thread>

#include "check.h"
#include "engine_fixture.h"

using namespace coxswain;
using namespace coxswain::testing;
using engine::EngineEvent;
using weights::Topology;

namespace {

constexpr size_t kResultHeader = 8;

Topology topology_of(std::vector<double> split, int pp, bool exact = true) {
  Topology topology;
  topology.split = std::move(split);
  topology.pp = pp;
  topology.kv_type = 0;
  topology.exact = exact;
  return topology;
}

bool is_result(const EngineEvent& event) { return event.kind == EngineEvent::Kind::kResult; }
bool failed_with(const EngineEvent& event, const char* code, const char* fragment) {
  const bool ok = event.kind == EngineEvent::Kind::kFailed && event.code == code &&
                  event.message.find(fragment) != std::string::npos;
  if (!ok) std::fprintf(stderr, "event: %s: %s\n", event.code.c_str(), event.message.c_str());
  return ok;
}

const std::vector<uint32_t> kTokens{5, 17, 80, 3, 44, 21, 9, 60, 33, 2, 71, 90};

// All logits of kTokens, fed as 5 + 4 + 1 + 1 + 1 rows.
std::vector<float> logits_of(const TinyModel& model, const Topology& topology, int threads) {
  const ModelFile file(model);
  TestCluster cluster(file.path(), topology, threads);
  cluster.begin_epoch(1);
  std::vector<float> logits;
  uint32_t at = 0;
  uint64_t step = 1;
  for (const uint32_t rows : {5u, 4u, 1u, 1u, 1u}) {
    RecordBuilder record(1, step);
    if (at == 0) record.create(0, {2});
    record.run(0, at, {kTokens.begin() + at, kTokens.begin() + at + rows});
    for (uint32_t row = 0; row < rows; ++row) record.output(row, 3);
    cluster.submit(record);
    const EngineEvent event = cluster.wait_leader(step);
    if (!CHECK(is_result(event))) {
      std::fprintf(stderr, "%s: %s\n", event.code.c_str(), event.message.c_str());
      return {};
    }
    size_t word = kResultHeader;
    for (uint32_t row = 0; row < rows; ++row) {
      CHECK(word_at(event.bytes, word) == 3 && word_at(event.bytes, word + 1) == 0);
      const uint32_t count = word_at(event.bytes, word + 2);
      CHECK(count == static_cast<uint32_t>(model.vocab));
      const size_t size = logits.size();
      logits.resize(size + count);
      std::memcpy(logits.data() + size, event.bytes.data() + (word + 3) * 4, count * 4);
      word += 3 + count;
    }
    at += rows;
    ++step;
  }
  return logits;
}

float distance(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  float worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

void shards_agree_with_one_rank() {
  TinyModel llama{.ffn = 256};
  TinyModel qwen2{.architecture = "qwen2", .layers = 3, .ffn = 256, .tied = false, .bias = true};
  TinyModel qwen3{.architecture = "qwen3",
                  .heads = 6,
                  .kv_heads = 2,
                  .head_dim = 32,
                  .ffn = 256,
                  .qk_norm = true};
  TinyModel one_kv_head{.heads = 3, .kv_heads = 1, .head_dim = 32, .ffn = 224};
  for (const TinyModel& model : {llama, qwen2, qwen3, one_kv_head}) {
    const std::vector<float> one = logits_of(model, topology_of({1}, 1), 1);
    float largest = 0;
    for (const float logit : one) largest = std::max(largest, std::abs(logit));
    CHECK(largest > 0.5f && largest < 1000);
    CHECK(same_bits(one, logits_of(model, topology_of({1}, 1), 3)));
    CHECK(same_bits(one, logits_of(model, topology_of({1}, 2), 1)));
    CHECK(distance(one, logits_of(model, topology_of({1, 1}, 1), 2)) < 1e-3f);
    CHECK(distance(one, logits_of(model, topology_of({3, 1}, 2), 1)) < 1e-3f);
    // More ranks than heads: some contribute nothing to the attention.
    CHECK(distance(one, logits_of(model, topology_of({1, 1, 1, 1, 1, 1}, 1), 1)) < 1e-3f);
  }
  TinyModel quantised{.type = TensorType::kQ8_0};
  const std::vector<float> a8 = logits_of(quantised, topology_of({1}, 1, false), 1);
  CHECK(same_bits(a8, logits_of(quantised, topology_of({1}, 2, false), 3)));
  CHECK(distance(a8, logits_of(quantised, topology_of({1}, 1, true), 1)) < 0.3f);
}

// Slot 0 ends by its length, slot 1 goes on; both are decoded in one batch, each step from the
// last.
void rows_of_finished_slots_are_skipped(const Topology& topology) {
  const ModelFile file(TinyModel{.layers = 3});
  TestCluster cluster(file.path(), topology, 1);
  cluster.begin_epoch(3);
  RecordBuilder first(3, 1);
  first.create(0, {0}).sampler(0, 6).create(1, {1}).sampler(1, 100);
  first.run(0, 0, {5, 6, 7}).run(1, 0, {5, 6, 7}).output(2, 1).output(5, 1);
  cluster.submit(first);
  for (uint64_t step = 2; step <= 5; ++step) {
    RecordBuilder record(3, step);
    const uint32_t position = static_cast<uint32_t>(step) + 1;
    record.run_from(0, position, step - 1, 0).run_from(1, position, step - 1, 1);
    cluster.submit(record.output(0, 1).output(1, 1));
  }
  // Positions 3, 4, 5 are sampled by steps 1, 2, 3: the third token reaches length_max 6.
  for (uint64_t step = 1; step <= 5; ++step) {
    const EngineEvent event = cluster.wait_leader(step);
    CHECK(is_result(event));
    size_t word = kResultHeader;
    CHECK(word_at(event.bytes, 5) == 2);
    if (step <= 3) {
      CHECK(word_at(event.bytes, word + 1) == 0);
      CHECK(word_at(event.bytes, word + 3) == (step == 3 ? 2u : 0u));
      word += 6;
    } else {
      CHECK(word_at(event.bytes, word + 1) == 1);
      word += 2;
    }
    CHECK(word_at(event.bytes, word) == 1 && word_at(event.bytes, word + 1) == 0);
    CHECK(word_at(event.bytes, word + 3) == 0);
  }
  // Every rank skipped the same rows: its slot 0 has 5 tokens, so position 5 is the next.
  RecordBuilder more(3, 6);
  more.run(0, 5, {1}).run_from(1, 7, 5, 1).output(0, 1);
  cluster.submit(more);
  const int ranks = static_cast<int>(topology.split.size()) * topology.pp;
  for (int rank = 0; rank < ranks; ++rank) CHECK(is_result(cluster.wait(rank, 6)));
}

void refuses_bad_steps_until_the_next_epoch() {
  const ModelFile file(TinyModel{});
  TestCluster cluster(file.path(), topology_of({1}, 1), 1);
  const auto fails = [&](const RecordBuilder& record, uint64_t step, const char* fragment) {
    cluster.submit(record);
    CHECK(failed_with(cluster.wait(0, step), "STEP_INVALID", fragment));
  };
  cluster.submit(RecordBuilder(1, 1));
  CHECK(failed_with(cluster.wait(0, 1), "STEP_INVALID", "before any epoch"));
  uint64_t epoch = 10;
  const auto fresh = [&](uint64_t step = 1) {
    cluster.begin_epoch(++epoch);
    return RecordBuilder(epoch, step);
  };
  fails(fresh().run(0, 0, {1}), 1, "slot 0 does not exist");
  fails(RecordBuilder(epoch, 2).create(0, {0}), 2, "earlier step failed");
  fails(fresh(2), 2, "where step 1 was due");
  fails(fresh().create(0, {0}).run(0, 1, {1}), 1, "position 1");
  fails(fresh().create(0, {0}).run(0, 0, {96}), 1, "token id 96");
  fails(fresh().create(0, {8}), 1, "block 8");
  fails(fresh().create(0, {0}).run(0, 0, {1}).output(1, 1), 1, "row 1");
  fails(fresh().create(0, {0}).run(0, 0, {1}).output(0, 1), 1, "no sampler");
  fails(fresh().create(0, {0}).run(0, 0, {1}).output(0, 2, 96), 1, "target 96");
  fails(fresh().create(0, {0}).run(0, 0, std::vector<uint32_t>(65, 1)), 1, "65 rows");
  fails(fresh().create(0, {0}).run_from(0, 0, 1, 0), 1, "output 0 of step 1");
  fails(fresh().create(0, {0}).run_from(0, 0, 0, 0), 1, "output 0 of step 0");
  fails(RecordBuilder(fresh().build().size(), 1), 1, "epoch");
  RecordBuilder good = fresh();
  cluster.submit(good.create(0, {0}).run(0, 0, {1, 2}).output(1, 2, 7));
  CHECK(is_result(cluster.wait(0, 1)));
}

void survives_more_steps_than_it_queues() {
  const ModelFile file(TinyModel{});
  TestCluster cluster(file.path(), topology_of({1}, 1), 1);
  cluster.begin_epoch(1);
  cluster.submit(RecordBuilder(1, 1).create(0, {0}));
  for (uint64_t step = 2; step < 1000; ++step) {
    RecordBuilder record(1, step);
    record.truncate(0, 0, 1).run(0, 0, std::vector<uint32_t>(60, 1));
    cluster.submit(record);
  }
  cluster.engine(0).fence();
  cluster.begin_epoch(2);
  cluster.submit(RecordBuilder(2, 1).create(0, {0}).run(0, 0, {1}));
  CHECK(is_result(cluster.wait(0, 1)));
}

void a_fence_ends_every_wait() {
  const ModelFile file(TinyModel{});
  TestCluster cluster(file.path(), topology_of({1, 1}, 1), 1);
  cluster.begin_epoch(1);
  // Rank 1 never hears of the step.
  cluster.engine(0).submit(RecordBuilder(1, 1).create(0, {0}).run(0, 0, {1}).build());
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK(cluster.engine(0).progress().busy);
  const auto started = std::chrono::steady_clock::now();
  cluster.engine(0).fence();
  const auto taken = std::chrono::steady_clock::now() - started;
  CHECK(taken < std::chrono::milliseconds(500));
  CHECK(!cluster.engine(0).progress().busy);
  CHECK(!cluster.has_event(0, 1));
  cluster.begin_epoch(2);
  cluster.submit(RecordBuilder(2, 1).create(0, {0}).run(0, 0, {1}));
  CHECK(is_result(cluster.wait(0, 1)) && is_result(cluster.wait(1, 1)));
}

void a_silent_peer_is_named() {
  const ModelFile file(TinyModel{});
  TestCluster cluster(file.path(), topology_of({1, 1}, 1), 1);
  cluster.begin_epoch(1);
  cluster.submit(RecordBuilder(1, 1).create(0, {0}).run(0, 0, {1}));
  CHECK(is_result(cluster.wait(0, 1)) && is_result(cluster.wait(1, 1)));
  cluster.engine(0).submit(RecordBuilder(1, 2).run(0, 1, {1}).build());
  const EngineEvent event = cluster.wait(0, 2);
  CHECK(failed_with(event, "LINK_TIMEOUT", "rank 1"));
  CHECK(event.message.find("step 2") != std::string::npos);
  CHECK(event.message.find("attention") != std::string::npos);
}

// Every head frame of rank 1 comes 1.2 s after the one before it: more than the least patience of
// 2 s in all, and each in time.
void every_window_of_a_head_has_its_own_deadline() {
  const ModelFile file(TinyModel{});
  TestCluster cluster(file.path(), topology_of({1, 1}, 1), 1);
  int windows = 0;
  cluster.begin_epoch(1, comm::make_fake_planes_with_faults(
                             2, 1, [&windows](int from, int, std::vector<std::byte>& packet) {
                               comm::FrameHeader envelope;
                               comm::FrameHeader frame;
                               std::memcpy(&envelope, packet.data(), sizeof envelope);
                               if (from != 1 || envelope.kind != comm::FrameKind::kPacket) {
                                 return comm::FakeVerdict{};
                               }
                               std::memcpy(&frame, packet.data() + sizeof envelope, sizeof frame);
                               const bool head =
                                   frame.kind == comm::FrameKind::kMessage && frame.step == 2;
                               comm::FakeVerdict verdict;
                               if (head) verdict.delay_ns = int64_t{1'200'000'000} * ++windows;
                               return verdict;
                             }));
  // Measured: before, the patience is longer.
  cluster.submit(RecordBuilder(1, 1).create(0, {0}).run(0, 0, std::vector<uint32_t>(64, 1)));
  CHECK(is_result(cluster.wait(0, 1)));
  RecordBuilder large(1, 2);
  large.run(0, 64, std::vector<uint32_t>(64, 1));
  for (uint32_t row = 0; row < 64; ++row) large.output(row, 3);
  cluster.submit(large);
  const EngineEvent event = cluster.wait(0, 2);
  if (!CHECK(is_result(event))) std::fprintf(stderr, "%s\n", event.message.c_str());
  CHECK(windows == 2);
}

// Stage 0 is slow from the first step on. Stage 1 computes next to nothing itself, and gives it
// time.
void a_slow_peer_is_not_accused() {
  const ModelFile file(TinyModel{.layers = 2});
  TestCluster cluster(file.path(), topology_of({1}, 2), 1);
  const auto slow = [](int from, int, std::vector<std::byte>& packet) {
    comm::FrameHeader envelope;
    std::memcpy(&envelope, packet.data(), sizeof envelope);
    comm::FakeVerdict verdict;
    if (from != 0 || envelope.kind != comm::FrameKind::kPacket) return verdict;
    comm::FrameHeader frame;
    std::memcpy(&frame, packet.data() + sizeof envelope, sizeof frame);
    verdict.delay_ns = frame.step == 1 ? 400'000'000 : 2'400'000'000;
    return verdict;
  };
  cluster.begin_epoch(1, comm::make_fake_planes_with_faults(2, 1, slow));
  cluster.submit(RecordBuilder(1, 1).create(0, {0}).run(0, 0, {1}).output(0, 2, 7));
  CHECK(is_result(cluster.wait(1, 1)));
  cluster.submit(RecordBuilder(1, 2).run(0, 1, {1}).output(0, 2, 7));
  const EngineEvent event = cluster.wait(1, 2);
  if (!CHECK(is_result(event))) std::fprintf(stderr, "%s\n", event.message.c_str());
}

void ranks_that_differ_are_found_out() {
  const ModelFile file(TinyModel{});
  TestCluster cluster(file.path(), topology_of({1, 1}, 1), 1);
  cluster.begin_epoch(1);
  for (int rank = 0; rank < 2; ++rank) {
    RecordBuilder record(1, 1);
    record.create(0, {0}).sampler(0, 50).run(0, 0, {1, rank == 0 ? 2u : 3u}).output(1, 1);
    cluster.engine(rank).submit(record.build());
  }
  CHECK(failed_with(cluster.wait(0, 1), "RANK_DIVERGED", "rank 1"));
}

}  // namespace

int main() {
  shards_agree_with_one_rank();
  rows_of_finished_slots_are_skipped(topology_of({1}, 1));
  rows_of_finished_slots_are_skipped(topology_of({1, 1}, 1));
  rows_of_finished_slots_are_skipped(topology_of({1}, 3));
  rows_of_finished_slots_are_skipped(topology_of({2, 1}, 2));
  refuses_bad_steps_until_the_next_epoch();
  survives_more_steps_than_it_queues();
  a_fence_ends_every_wait();
  a_silent_peer_is_named();
  every_window_of_a_head_has_its_own_deadline();
  a_slow_peer_is_not_accused();
  ranks_that_differ_are_found_out();
  return finish("engine_steps_test");
}

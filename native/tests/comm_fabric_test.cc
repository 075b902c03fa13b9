// Opening epochs: which transport two ranks agree on, what they refuse, how an epoch ends.
#include "tests/comm_fabrics.h"

using namespace coxswain;
using namespace coxswain::comm;
using namespace coxswain::comm::testing;

namespace {

void auto_takes_shared_memory_on_one_host() {
  Cluster cluster(3);
  auto opened = open_mesh(cluster, 1, TransportKind::kAuto);
  for (const Opened& one : opened) {
    CHECK(expect_text(one.failure, one.failure.empty()));
    CHECK(one.reports.size() == 2);
    for (const LinkReport& report : one.reports) {
      CHECK(report.transport == TransportKind::kShm && report.interface == "shm");
      CHECK(report.round_trip_us > 0 && report.round_trip_us < 1e6);
    }
  }
  // Both ends state the figure that one of them measured.
  CHECK(opened[0].reports[0].round_trip_us == opened[1].reports[0].round_trip_us);
  CHECK(no_segment_is_left());
}

void tcp_names_its_interface() {
  Cluster cluster(2);
  auto opened = open_mesh(cluster, 1, TransportKind::kTcp);
  CHECK(opened[0].reports.size() == 1 && opened[0].reports[0].interface == "lo");
  CHECK(opened[1].reports.size() == 1 && opened[1].reports[0].interface == "lo");
}

void one_end_may_insist_and_the_other_not_care() {
  for (const TransportKind kind : {TransportKind::kShm, TransportKind::kTcp}) {
    Cluster cluster(2);
    auto opened =
        open_all(cluster, {cluster.spec(0, 1, kind), cluster.spec(1, 1, TransportKind::kAuto)});
    CHECK(opened[0].plane && opened[1].plane);
    CHECK(opened[0].reports[0].transport == kind && opened[1].reports[0].transport == kind);
  }
}

void contradicting_wishes_are_refused_on_both_ends() {
  Cluster cluster(2);
  const auto opened = open_all(
      cluster, {cluster.spec(0, 1, TransportKind::kShm), cluster.spec(1, 1, TransportKind::kTcp)});
  for (const Opened& one : opened) {
    CHECK(expect_text(one.failure, begins(one.failure,
                                          "LINK_PROTOCOL: rank 0 and rank 1 cannot be "
                                          "linked: one is told to use shm, the other tcp")));
  }
}

void a_later_epoch_ends_the_earlier_one() {
  for (const TransportKind kind : {TransportKind::kShm, TransportKind::kTcp}) {
    Cluster cluster(2);
    auto first = open_mesh(cluster, 4, kind);
    std::string failure;
    std::thread waiting([&] {
      std::vector<std::byte> got(8);
      failure = failure_of([&] { first[0].plane->recv(1, got, wait_ms(20'000)); });
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    auto second = open_mesh(cluster, 5, kind);
    waiting.join();
    CHECK(expect_text(failure, begins(failure, "EPOCH_FENCED") || begins(failure, "LINK_CLOSED")));
    CHECK(begins(failure_of([&] { first[1].plane->send(0, pattern(1 << 20, 1), wait_ms(5000)); }),
                 "EPOCH_FENCED"));
    Planes planes;
    for (Opened& one : second) planes.push_back(std::move(one.plane));
    const auto failures = run_ranks(planes, [](DataPlane& plane) {
      CHECK(plane.epoch() == 5);
      CHECK(reduces_like_the_twin(plane, ranks_to(2), 1000, 1));
    });
    CHECK(all_fine(failures));
    // And the old one does not come back.
    const Opened old = open_one(*cluster.fabrics[0], cluster.spec(0, 4, kind));
    CHECK(expect_text(old.failure, begins(old.failure, "LINK_PROTOCOL: epoch 4 is over")));
    for (auto& plane : planes) plane.reset();
  }
  CHECK(no_segment_is_left());
}

void an_absent_peer_is_named_from_both_sides() {
  Cluster cluster(2);
  EpochSpec spec = cluster.spec(0, 1, TransportKind::kAuto);
  spec.open_timeout_ns = 150'000'000;
  const Opened waits = open_one(*cluster.fabrics[0], spec);
  CHECK(expect_text(waits.failure,
                    begins(waits.failure, "LINK_TIMEOUT: rank 1 did not dial within ")));
  spec = cluster.spec(1, 1, TransportKind::kAuto);
  spec.open_timeout_ns = 150'000'000;
  const Opened dials = open_one(*cluster.fabrics[1], spec);
  CHECK(expect_text(
      dials.failure,
      begins(dials.failure, "LINK_TIMEOUT: rank 1 could not reach rank 0 at 127.0.0.1:")));
  // Nobody listens there.
  cluster.fabrics[0].reset();
  const Opened refused = open_one(*cluster.fabrics[1], spec);
  CHECK(expect_text(refused.failure, contains(refused.failure, "Connection refused")));
}

void a_fence_aborts_opening() {
  Cluster cluster(2);
  for (const int rank : {0, 1}) {
    std::atomic<bool> fence{false};
    Opened opened;
    int64_t left_at = 0;
    std::thread opening([&] {
      opened = open_one(*cluster.fabrics[static_cast<size_t>(rank)],
                        cluster.spec(rank, 2, TransportKind::kAuto), fence);
      left_at = now_ns();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    const int64_t fenced_at = now_ns();
    fence = true;
    opening.join();
    CHECK(expect_text(opened.failure, begins(opened.failure, "EPOCH_FENCED")));
    CHECK(left_at - fenced_at < 250'000'000);
  }
}

void late_ranks_are_waited_for() {
  Cluster cluster(3);
  std::vector<Opened> opened(3);
  std::vector<std::thread> threads;
  for (const size_t rank : {size_t{2}, size_t{0}, size_t{1}}) {
    threads.emplace_back([&, rank] {
      opened[rank] = open_one(*cluster.fabrics[rank],
                              cluster.spec(static_cast<int>(rank), 1, TransportKind::kAuto));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
  for (auto& thread : threads) thread.join();
  for (const Opened& one : opened) CHECK(expect_text(one.failure, one.plane != nullptr));
  for (const auto& fabric : cluster.fabrics) CHECK(fabric->strangers_refused() == 0);
}

void bad_specs_are_refused() {
  Cluster cluster(2);
  const auto refusal = [&](const std::function<void(EpochSpec&)>& spoil) {
    EpochSpec spec = cluster.spec(0, 1, TransportKind::kAuto);
    spoil(spec);
    return open_one(*cluster.fabrics[0], spec).failure;
  };
  CHECK(contains(refusal([](EpochSpec& s) { s.incarnation = "xyz"; }), "32 hex digits"));
  CHECK(contains(refusal([](EpochSpec& s) { s.incarnation[5] = 'g'; }), "32 hex digits"));
  CHECK(contains(refusal([](EpochSpec& s) { s.data_key.pop_back(); }), "a data key has 32 bytes"));
  CHECK(
      contains(refusal([](EpochSpec& s) { s.links[0].peer = 0; }), "cannot have a link to rank 0"));
  CHECK(contains(refusal([](EpochSpec& s) { s.links.push_back(s.links[0]); }), "or has it twice"));
  CHECK(contains(refusal([](EpochSpec& s) { s.links[0].transport = TransportKind::kGrpc; }),
                 "grpc links are not opened by sockets"));
  CHECK(begins(failure_of([] { make_fabric("192.0.2.1"); }),
               "LINK_PROTOCOL: cannot listen for peers on 192.0.2.1:0"));
}

void a_rank_without_links_needs_nobody() {
  Cluster cluster(1);
  const auto opened = open_mesh(cluster, 1, TransportKind::kAuto);
  CHECK(opened[0].plane && opened[0].plane->epoch() == 1);
}

}  // namespace

int main() {
  auto_takes_shared_memory_on_one_host();
  tcp_names_its_interface();
  one_end_may_insist_and_the_other_not_care();
  contradicting_wishes_are_refused_on_both_ends();
  a_later_epoch_ends_the_earlier_one();
  an_absent_peer_is_named_from_both_sides();
  a_fence_aborts_opening();
  late_ranks_are_waited_for();
  bad_specs_are_refused();
  a_rank_without_links_needs_nobody();
  return coxswain::testing::finish("comm_fabric_test");
}

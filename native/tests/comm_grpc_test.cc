// The conformance suite over grpc ports, joined by threads that play the part of JavaScript: they
// carry packets from one bridge to the other, in order, a little late.
#include <condition_variable>
#include <deque>
#include <map>

#include "comm/frame.h"
#include "tests/comm_conformance.h"

using namespace coxswain;
using namespace coxswain::comm;
using namespace coxswain::comm::testing;

namespace {

// The event loop of the process of one rank: packets leave through it and reach the other bridges.
class Courier {
 public:
  explicit Courier(int self) : self_(self), thread_([this] { run(); }) {}
  ~Courier() { stop(); }
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  void connect(int peer, GrpcBridge& bridge) { bridges_[peer] = &bridge; }
  static void outgoing(void* context, int peer, std::vector<std::byte> packet) {
    auto& self = *static_cast<Courier*>(context);
    {
      const std::lock_guard lock(self.mutex_);
      self.queue_.emplace_back(peer, std::move(packet));
      self.queued_bytes_ += self.queue_.back().second.size();
      self.most_queued_ = std::max(self.most_queued_, self.queued_bytes_);
    }
    self.changed_.notify_all();
  }
  size_t most_queued() {
    const std::lock_guard lock(mutex_);
    return most_queued_;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      while (queue_.empty() && !stopping_) {
        changed_.wait_until(lock, std::chrono::system_clock::now() + std::chrono::seconds(1));
      }
      if (queue_.empty()) return;
      auto [peer, packet] = std::move(queue_.front());
      queue_.pop_front();
      queued_bytes_ -= packet.size();
      lock.unlock();
      bridges_.at(peer)->port(self_).deliver(packet);
      lock.lock();
    }
  }

  int self_;
  std::map<int, GrpcBridge*> bridges_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<int, std::vector<std::byte>>> queue_;
  size_t queued_bytes_ = 0, most_queued_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

struct Processes {
  std::vector<std::unique_ptr<GrpcBridge>> bridges;
  std::vector<std::unique_ptr<Courier>> couriers;
  explicit Processes(int count) {
    for (int i = 0; i < count; ++i) {
      couriers.push_back(std::make_unique<Courier>(i));
      bridges.push_back(make_grpc_bridge(&Courier::outgoing, couriers.back().get()));
    }
    for (auto& courier : couriers) {
      for (int peer = 0; peer < count; ++peer) {
        courier->connect(peer, *bridges[static_cast<size_t>(peer)]);
      }
    }
  }
  // Couriers touch bridges until they have stopped.
  ~Processes() {
    for (auto& courier : couriers) courier->stop();
  }
};

// Closes the peers' ports, as JavaScript does when the connection ends with the plane.
class HangingUp final : public DataPlane {
 public:
  HangingUp(std::unique_ptr<DataPlane> plane, std::shared_ptr<Processes> processes)
      : plane_(std::move(plane)), processes_(std::move(processes)) {}
  ~HangingUp() override {
    const int self = plane_->rank();
    plane_.reset();
    // What was sent before arrives before.
    processes_->couriers[static_cast<size_t>(self)]->stop();
    for (auto& bridge : processes_->bridges) bridge->port(self).closed("the stream ended");
  }
  int rank() const override { return plane_->rank(); }
  uint64_t epoch() const override { return plane_->epoch(); }
  void all_reduce(std::span<const int> group, std::span<const double> partials,
                  std::span<float> sum, const Wait& wait) override {
    plane_->all_reduce(group, partials, sum, wait);
  }
  void send(int peer, std::span<const std::byte> bytes, const Wait& wait) override {
    plane_->send(peer, bytes, wait);
  }
  void recv(int peer, std::span<std::byte> bytes, const Wait& wait) override {
    plane_->recv(peer, bytes, wait);
  }
  Counters counters() const override { return plane_->counters(); }

 private:
  std::unique_ptr<DataPlane> plane_;
  std::shared_ptr<Processes> processes_;
};

EpochSpec spec_of(int rank, int count, uint64_t epoch) {
  EpochSpec spec;
  spec.epoch = epoch;
  spec.rank = rank;
  for (int peer = 0; peer < count; ++peer) {
    if (peer != rank) spec.links.push_back({peer, TransportKind::kGrpc, "", 0});
  }
  return spec;
}

Planes open_planes(const std::shared_ptr<Processes>& processes, int count, uint64_t epoch) {
  Planes planes;
  planes.resize(static_cast<size_t>(count));
  planes.keeper = processes;
  static const std::atomic<bool> no_fence{false};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      std::vector<LinkReport> reports;
      auto& bridge = *processes->bridges[static_cast<size_t>(rank)];
      const std::string failure = failure_of([&] {
        planes[static_cast<size_t>(rank)] = std::make_unique<HangingUp>(
            open_grpc(spec_of(rank, count, epoch), bridge, no_fence, &reports), processes);
      });
      CHECK(expect_text(failure, failure.empty()));
      for (const LinkReport& report : reports) {
        CHECK(report.transport == TransportKind::kGrpc && report.round_trip_us > 0);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return planes;
}

void queues_stay_bounded_while_the_peer_takes_nothing() {
  auto processes = std::make_shared<Processes>(2);
  Planes planes = open_planes(processes, 2, 3);
  const auto big = pattern(64'000'000, 1);
  CHECK(begins(failure_of([&] { planes[0]->send(1, big, wait_ms(200)); }), "LINK_TIMEOUT"));
  CHECK(processes->couriers[0]->most_queued() <= 5'000'000);
  CHECK(planes[0]->counters().bytes_sent <= 5'000'000);
}

void a_flood_closes_the_port_instead_of_filling_memory() {
  auto bridge = make_grpc_bridge([](void*, int, std::vector<std::byte>) {}, nullptr);
  const std::vector<std::byte> packet(1'000'000, std::byte{1});
  for (int i = 0; i < 100; ++i) bridge->port(1).deliver(packet);
  // Opening forgives the close, but what was delivered is no packet.
  EpochSpec spec = spec_of(0, 2, 5);
  spec.open_timeout_ns = 300'000'000;
  const std::atomic<bool> no_fence{false};
  const std::string failure = failure_of([&] { open_grpc(spec, *bridge, no_fence, nullptr); });
  CHECK(expect_text(failure,
                    begins(failure, "LINK_PROTOCOL: rank 0 got from rank 1 bytes that are")));
}

void packets_of_an_older_epoch_are_dropped() {
  auto processes = std::make_shared<Processes>(2);
  {
    Planes first = open_planes(processes, 2, 3);
    // Left unread when epoch 3 ends.
    first[0]->send(1, pattern(5000, 1), wait_ms(1000));
    // Lets the plane go without hanging up, as a fence does.
    const std::string closed_by = failure_of([&] { first[1]->recv(0, {}, wait_ms(1000)); });
    CHECK(begins(closed_by, "LINK_PROTOCOL"));
    FrameHeader late;
    late.kind = FrameKind::kPacket;
    late.epoch = 2;
    processes->bridges[1]->port(0).deliver(std::as_bytes(std::span(&late, 1)));
  }
  auto again = std::make_shared<Processes>(2);
  FrameHeader late;
  late.kind = FrameKind::kPacket;
  late.epoch = 3;
  for (int rank : {0, 1}) {
    again->bridges[static_cast<size_t>(rank)]->port(1 - rank).deliver(
        std::as_bytes(std::span(&late, 1)));
  }
  Planes planes = open_planes(again, 2, 4);
  again->bridges[0]->port(1).deliver(std::as_bytes(std::span(&late, 1)));
  const auto failures = run_ranks(
      planes, [&](DataPlane& plane) { CHECK(reduces_like_the_twin(plane, ranks_to(2), 1000, 1)); });
  CHECK(all_fine(failures));
}

void a_peer_that_never_comes_is_named() {
  auto bridge = make_grpc_bridge([](void*, int, std::vector<std::byte>) {}, nullptr);
  EpochSpec spec = spec_of(1, 2, 5);
  spec.open_timeout_ns = 200'000'000;
  std::atomic<bool> fence{false};
  const std::string late = failure_of([&] { open_grpc(spec, *bridge, fence, nullptr); });
  CHECK(expect_text(late, begins(late, "LINK_TIMEOUT: rank 1 waited ") &&
                              contains(late, " ms for rank 0 in step 0, opening the link")));
  fence = true;
  CHECK(begins(failure_of([&] { open_grpc(spec, *bridge, fence, nullptr); }), "EPOCH_FENCED"));
  spec.links[0].transport = TransportKind::kShm;
  CHECK(begins(failure_of([&] { open_grpc(spec, *bridge, fence, nullptr); }),
               "LINK_PROTOCOL: shm link to rank 0 in an epoch whose data plane is grpc"));
}

}  // namespace

int main() {
  run_conformance(
      "grpc", [](int count) { return open_planes(std::make_shared<Processes>(count), count, 3); },
      1000);
  queues_stay_bounded_while_the_peer_takes_nothing();
  a_flood_closes_the_port_instead_of_filling_memory();
  packets_of_an_older_epoch_are_dropped();
  a_peer_that_never_comes_is_named();
  return coxswain::testing::finish("comm_grpc_test");
}

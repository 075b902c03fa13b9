// The conformance suite over queues in one process, faults of the packet layer, and the plane of a
// rank alone.
#include "comm/frame.h"
#include "tests/comm_conformance.h"
#include "tests/fake_planes.h"

using namespace coxswain;
using namespace coxswain::comm;
using namespace coxswain::comm::testing;

namespace {

// Applies `verdict` to packet number `which` from rank 0 to rank 1.
FakeFaults fault_at(int which, FakeVerdict verdict,
                    std::function<void(std::vector<std::byte>&)> alter = nullptr) {
  auto count = std::make_shared<std::atomic<int>>(0);
  return [=](int from, int, std::vector<std::byte>& packet) {
    if (from != 0 || (*count)++ != which) return FakeVerdict{};
    if (alter) alter(packet);
    return verdict;
  };
}

// Three messages from 0 to 1 under a fault; what rank 1 threw.
std::string receive_under(FakeFaults faults, int64_t ms) {
  Planes planes{make_fake_planes_with_faults(2, 9, std::move(faults)), nullptr};
  return run_ranks(planes, [&](DataPlane& plane) {
    for (unsigned i = 0; i < 3; ++i) {
      if (plane.rank() == 0) plane.send(1, pattern(100, i), wait_ms(5000));
      std::vector<std::byte> got(100);
      if (plane.rank() == 1) plane.recv(0, got, wait_ms(ms));
      if (plane.rank() == 1 && got != pattern(100, i)) throw EngineError("WRONG", "bytes");
    }
  })[1];
}

void faults_are_noticed() {
  using Kind = FakeVerdict::Kind;
  CHECK(receive_under(fault_at(1, {Kind::kPass, 100'000'000}), 5000).empty());
  const std::string dropped = receive_under(fault_at(1, {Kind::kDrop, 0}), 5000);
  CHECK(expect_text(dropped, begins(dropped, "LINK_PROTOCOL: rank 1 got from rank 0 packet 2")));
  const std::string last = receive_under(fault_at(2, {Kind::kDrop, 0}), 300);
  CHECK(expect_text(last, begins(last, "LINK_TIMEOUT: rank 1 waited")));
  const std::string twice = receive_under(fault_at(1, {Kind::kDuplicate, 0}), 5000);
  CHECK(expect_text(twice, contains(twice, "packet 1 of rank 0 where packet 2 was due")));
  const std::string closed = receive_under(fault_at(1, {Kind::kClose, 0}), 5000);
  CHECK(expect_text(closed, begins(closed, "LINK_CLOSED: rank 1 lost rank 0")));
}

void altered_headers_are_noticed() {
  const auto flip = [](size_t at) {
    return [at](std::vector<std::byte>& packet) { packet[at] ^= std::byte{0x40}; };
  };
  const FakeVerdict pass{};
  const std::string magic = receive_under(fault_at(1, pass, flip(0)), 5000);
  CHECK(expect_text(magic, contains(magic, "bytes that are no packet")));
  const std::string inner = receive_under(fault_at(1, pass, flip(64)), 5000);
  CHECK(expect_text(inner, contains(inner, "bytes that are no frame (epoch 9, step 1, layer 7")));
  const std::string epoch = receive_under(fault_at(1, pass, flip(64 + 8)), 5000);
  CHECK(expect_text(epoch, contains(epoch, "a frame of epoch 73")));
  const std::string sequence = receive_under(fault_at(1, pass, flip(64 + 24)), 5000);
  CHECK(expect_text(sequence, contains(sequence, "frame 65 where frame 1 was due")));
  const std::string kind = receive_under(fault_at(1, pass, flip(64 + 4)), 5000);
  CHECK(expect_text(kind, contains(kind, "where a message was due")));
  const std::string source = receive_under(fault_at(1, pass, flip(64 + 56)), 5000);
  CHECK(expect_text(source, contains(source, "names rank 64 as its sender")));
  const std::string cut = receive_under(
      fault_at(1, pass, [](std::vector<std::byte>& packet) { packet.resize(20); }), 5000);
  CHECK(expect_text(cut, contains(cut, "a packet without a header")));
  // An envelope of an older epoch is dropped, as if it had never come.
  const std::string old = receive_under(
      fault_at(2, pass, [](std::vector<std::byte>& packet) { packet[8] = std::byte{3}; }), 300);
  CHECK(expect_text(old, begins(old, "LINK_TIMEOUT")));
}

void a_rank_alone_sums_to_itself() {
  auto plane = make_solo_plane(4);
  std::vector<float> data = {1.5f, -2.0f};
  reduce(*plane, std::vector<int>{0}, data, wait_ms(1000));
  CHECK(data[0] == 1.5f && data[1] == -2.0f && plane->epoch() == 4 && plane->rank() == 0);
  CHECK(begins(failure_of([&] { plane->send(1, {}, wait_ms(10)); }), "LINK_PROTOCOL"));
}

}  // namespace

int main() {
  run_conformance(
      "fake", [](int count) { return Planes{make_fake_planes(count, 3), nullptr}; }, 5000);
  faults_are_noticed();
  altered_headers_are_noticed();
  a_rank_alone_sums_to_itself();
  return coxswain::testing::finish("comm_fake_test");
}

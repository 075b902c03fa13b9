// Strangers at the door: none gets in, none harms an epoch that is being opened or at work.
#include <poll.h>

#include <optional>

#include "comm/door.h"
#include "comm/handshake.h"
#include "comm/rendezvous.h"
#include "comm/socket.h"
#include "tests/comm_fabrics.h"

using namespace coxswain;
using namespace coxswain::comm;
using namespace coxswain::comm::testing;

namespace {

Patience patience_ms(int64_t ms) { return {now_ns() + ms * 1'000'000, nullptr}; }

Fd connect_stranger(uint16_t port) {
  std::string reason;
  Fd fd = connect_to("127.0.0.1", port, patience_ms(2000), &reason);
  CHECK(expect_text(reason, static_cast<bool>(fd)));
  return fd;
}

// Whether the other side closes the connection within `ms`.
bool is_closed(const Fd& fd, int64_t ms) {
  std::byte byte;
  std::string reason;
  return !read_all(fd.get(), {&byte, 1}, patience_ms(ms), &reason) && reason != "no answer";
}

Hello hello_of(uint32_t from, uint32_t to, uint64_t epoch) {
  Hello hello;
  hello.epoch = epoch;
  hello.incarnation = *parse_incarnation(kIncarnation);
  hello.from = from;
  hello.to = to;
  return make_hello(Role::kDialer, hello);
}

// Says hello and reads the answer; nothing when it is refused.
std::optional<Hello> greet(const Fd& fd, const Hello& mine) {
  std::string reason;
  Hello theirs;
  if (!write_all(fd.get(), std::as_bytes(std::span(&mine, 1)), patience_ms(1000), &reason) ||
      !read_all(fd.get(), std::as_writable_bytes(std::span(&theirs, 1)), patience_ms(1000),
                &reason)) {
    return std::nullopt;
  }
  return theirs;
}

bool send_proof(const Fd& fd, const Proof& proof) {
  std::string reason;
  Proof answer;
  return write_all(fd.get(), proof, patience_ms(1000), &reason) &&
         read_all(fd.get(), answer, patience_ms(1000), &reason);
}

// Rank 0 waits for rank 1 in epoch 7 while `strangers` do their worst; then rank 1 comes.
void with_open_door(const std::function<void(SocketFabric&, uint16_t)>& strangers) {
  Cluster cluster(2);
  Opened lower;
  std::thread opening(
      [&] { lower = open_one(*cluster.fabrics[0], cluster.spec(0, 7, TransportKind::kTcp)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  strangers(*cluster.fabrics[0], cluster.fabrics[0]->port());
  Opened higher = open_one(*cluster.fabrics[1], cluster.spec(1, 7, TransportKind::kTcp));
  opening.join();
  CHECK(expect_text(lower.failure, lower.plane != nullptr));
  CHECK(expect_text(higher.failure, higher.plane != nullptr));
}

void garbage_is_shown_out() {
  with_open_door([](SocketFabric& fabric, uint16_t port) {
    std::string reason;
    const Fd garbage = connect_stranger(port);
    CHECK(write_all(garbage.get(), bytes_of("GET / HTTP/1.1\r\n\r\n"), patience_ms(1000), &reason));
    CHECK(is_closed(garbage, 2000));
    CHECK(fabric.strangers_refused() == 1);
    const Fd half = connect_stranger(port);
    CHECK(write_all(half.get(), bytes_of("CXLK\1"), patience_ms(1000), &reason));
    const Fd silent = connect_stranger(port);
    {
      const Fd leaves = connect_stranger(port);
    }
    // The half and the silent one stay for now, and nobody minds.
    CHECK(!is_closed(half, 100));
    CHECK(!is_closed(silent, 10));
  });
}

void a_crowd_does_not_lock_a_peer_out() {
  with_open_door([](SocketFabric& fabric, uint16_t port) {
    std::vector<Fd> crowd;
    for (int i = 0; i < 200; ++i) crowd.push_back(connect_stranger(port));
    for (int i = 0; i < 100 && fabric.strangers_refused() < 136; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    CHECK(fabric.strangers_refused() == 200 - kUnprovenConnectionsMax);
    CHECK(is_closed(crowd.front(), 1000));
    CHECK(!is_closed(crowd.back(), 10));
    // The crowd still stands there while the peer comes in.
    static std::vector<Fd> kept;
    kept = std::move(crowd);
  });
}

void the_silent_are_shown_out_in_time() {
  Cluster cluster(1);
  const Fd silent = connect_stranger(cluster.fabrics[0]->port());
  const int64_t start = now_ns();
  CHECK(is_closed(silent, 8000));
  const int64_t took_ms = (now_ns() - start) / 1'000'000;
  CHECK(took_ms > 4000 && took_ms < 7500);
  CHECK(cluster.fabrics[0]->strangers_refused() == 1);
}

void a_wrong_key_proves_nothing() {
  with_open_door([](SocketFabric& fabric, uint16_t port) {
    const Fd fd = connect_stranger(port);
    const Hello mine = hello_of(1, 0, 7);
    const auto theirs = greet(fd, mine);
    CHECK(theirs && refusal_of(*theirs, mine).empty());
    const auto wrong = link_key("0123456789abcdef0123456789abcdeX", mine);
    CHECK(!send_proof(fd, prove(wrong, Role::kDialer, mine, *theirs)));
    CHECK(fabric.strangers_refused() == 1);
  });
  // Seen from the ranks: both time out and say so.
  Cluster cluster(2);
  EpochSpec lower = cluster.spec(0, 7, TransportKind::kTcp);
  EpochSpec higher = cluster.spec(1, 7, TransportKind::kTcp);
  lower.open_timeout_ns = higher.open_timeout_ns = 400'000'000;
  higher.data_key[0] = 'X';
  const auto opened = open_all(cluster, {lower, higher});
  CHECK(expect_text(opened[0].failure, contains(opened[0].failure, "its proof is wrong")));
  CHECK(expect_text(opened[1].failure, contains(opened[1].failure, "(it has another key?)")));
}

void a_recorded_proof_does_not_work_twice() {
  with_open_door([](SocketFabric& fabric, uint16_t port) {
    const Hello mine = hello_of(1, 0, 7);
    const auto key = link_key(kDataKey, mine);
    Proof recorded;
    {
      const Fd fd = connect_stranger(port);
      const auto theirs = greet(fd, mine);
      CHECK(theirs.has_value());
      recorded = prove(key, Role::kDialer, mine, *theirs);
      // Shown out before it arrives, so that the nonce is still fresh.
    }
    const Fd replay = connect_stranger(port);
    CHECK(greet(replay, mine).has_value());
    CHECK(!send_proof(replay, recorded));
    CHECK(fabric.strangers_refused() == 2);
  });
}

// Says the acceptor's own words back to it.
void a_mirror_is_recognised() {
  with_open_door([](SocketFabric& fabric, uint16_t port) {
    const Fd first = connect_stranger(port);
    const auto theirs = greet(first, hello_of(1, 0, 7));
    CHECK(theirs.has_value());
    const Fd second = connect_stranger(port);
    CHECK(!greet(second, *theirs));
    CHECK(fabric.strangers_refused() == 1);
  });
}

void the_old_epoch_the_wrong_rank_and_another_start_are_refused() {
  with_open_door([](SocketFabric& fabric, uint16_t port) {
    CHECK(!greet(connect_stranger(port), hello_of(1, 0, 6)));
    CHECK(!greet(connect_stranger(port), hello_of(2, 0, 7)));
    CHECK(!greet(connect_stranger(port), hello_of(1, 3, 7)));
    Hello other_start = hello_of(1, 0, 7);
    other_start.incarnation[0] ^= std::byte{1};
    CHECK(!greet(connect_stranger(port), other_start));
    CHECK(fabric.strangers_refused() == 4);
    // Ahead of this rank: it will dial again, and is no stranger.
    CHECK(!greet(connect_stranger(port), hello_of(1, 0, 8)));
    CHECK(fabric.strangers_refused() == 4);
  });
}

void another_version_is_told_so() {
  with_open_door([](SocketFabric&, uint16_t port) {
    Hello newer = hello_of(1, 0, 7);
    newer.version = 9;
    const Fd fd = connect_stranger(port);
    const auto theirs = greet(fd, newer);
    CHECK(theirs && theirs->version == kLinkVersion);
    CHECK(is_closed(fd, 1000));
  });
  // A dialer that meets one gives up at once, with both numbers.
  const Fd listener = listen_on("127.0.0.1", 0);
  std::thread acceptor([&] {
    const Patience patience = patience_ms(5000);
    CHECK(patience.wait_for(listener.get(), POLLIN));
    const Fd fd = accept_from(listener.get());
    Hello theirs;
    std::string reason;
    CHECK(read_all(fd.get(), std::as_writable_bytes(std::span(&theirs, 1)), patience, &reason));
    theirs.version = 2;
    CHECK(write_all(fd.get(), std::as_bytes(std::span(&theirs, 1)), patience, &reason));
    is_closed(fd, 2000);
  });
  const std::string failure = failure_of([&] {
    dial({"127.0.0.1", local_port(listener.get()), kDataKey}, hello_of(1, 0, 7), patience_ms(5000));
  });
  acceptor.join();
  CHECK(expect_text(failure, begins(failure, "LINK_PROTOCOL") &&
                                 contains(failure,
                                          "it speaks version 2 of the link protocol, this "
                                          "rank 1")));
}

void an_impostor_with_the_port_is_not_believed() {
  const Fd listener = listen_on("127.0.0.1", 0);
  std::atomic<bool> over{false};
  std::thread impostor([&] {
    while (!over) {
      if (!patience_ms(50).wait_for(listener.get(), POLLIN)) continue;
      const Patience patience = patience_ms(2000);
      const Fd fd = accept_from(listener.get());
      Hello theirs;
      std::string reason;
      if (!read_all(fd.get(), std::as_writable_bytes(std::span(&theirs, 1)), patience, &reason))
        continue;
      Hello about = theirs;
      std::swap(about.from, about.to);
      const Hello mine = make_hello(Role::kAcceptor, about);
      Proof proof;
      if (!write_all(fd.get(), std::as_bytes(std::span(&mine, 1)), patience, &reason) ||
          !read_all(fd.get(), proof, patience, &reason)) {
        continue;
      }
      // The dialer's own proof, reflected.
      write_all(fd.get(), proof, patience, &reason);
    }
  });
  const std::string failure = failure_of([&] {
    dial({"127.0.0.1", local_port(listener.get()), kDataKey}, hello_of(1, 0, 7), patience_ms(300));
  });
  over = true;
  impostor.join();
  CHECK(expect_text(failure,
                    begins(failure, "LINK_TIMEOUT") && contains(failure, "its proof is wrong")));
}

void an_epoch_at_work_does_not_notice() {
  Cluster cluster(2);
  auto opened = open_mesh(cluster, 7, TransportKind::kTcp);
  Planes planes;
  for (Opened& one : opened) planes.push_back(std::move(one.plane));
  std::atomic<bool> over{false};
  std::thread strangers([&] {
    std::string reason;
    while (!over) {
      const Fd fd = connect_stranger(cluster.fabrics[0]->port());
      write_all(fd.get(), pattern(3000, 1), patience_ms(100), &reason);
      greet(connect_stranger(cluster.fabrics[1]->port()), hello_of(0, 1, 7));
    }
  });
  const auto failures = run_ranks(planes, [](DataPlane& plane) {
    for (uint64_t i = 0; i < 500; ++i) CHECK(reduces_like_the_twin(plane, ranks_to(2), 576, i));
  });
  over = true;
  strangers.join();
  CHECK(all_fine(failures));
  CHECK(cluster.fabrics[0]->strangers_refused() > 0);
}

void a_door_checks_epoch_nonce_and_key() {
  DoorPlan plan{7, *parse_incarnation(kIncarnation), 0, kDataKey, {1}};
  Door door(plan);
  const Hello dialer = hello_of(1, 0, 7);
  const Door::Answer answer = door.answer(dialer);
  CHECK(answer.refusal.empty() && answer.reply);
  const auto key = link_key(kDataKey, dialer);
  const Proof proof = prove(key, Role::kDialer, dialer, answer.hello);
  Proof ours;
  // The door of the next epoch does not admit who was greeted by this one, even with the right key.
  plan.epoch = 8;
  Door next(plan);
  CHECK(next.admit(dialer, answer.hello, proof, &ours) == "the epoch it was greeted in is over");
  CHECK(door.admit(dialer, answer.hello, proof, &ours).empty());
  CHECK(ours == prove(key, Role::kAcceptor, dialer, answer.hello) && ours != proof);
  CHECK(door.admit(dialer, answer.hello, proof, &ours) == "its nonce was used before");
  Proof altered = proof;
  altered[31] ^= std::byte{1};
  CHECK(door.admit(hello_of(1, 0, 7), answer.hello, altered, &ours) == "its proof is wrong");
  // Keys differ by every part of the identity.
  Hello other = dialer;
  other.epoch = 8;
  CHECK(link_key(kDataKey, other) != key);
  other = dialer;
  other.incarnation[3] ^= std::byte{1};
  CHECK(link_key(kDataKey, other) != key);
  other = dialer;
  other.from = 2;
  CHECK(link_key(kDataKey, other) != key);
  std::swap(other.from, other.to);
  CHECK(link_key(kDataKey, other) != key);
  CHECK(!parse_incarnation("00") && !parse_incarnation(std::string(31, '0') + "x"));
}

void refusals_are_logged_sparsely() {
  std::mutex mutex;
  std::vector<std::string> lines;
  auto fabric = make_socket_fabric("127.0.0.1", [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(line);
  });
  std::string reason;
  for (uint64_t i = 0; i < 9; ++i) {
    const Fd fd = connect_stranger(fabric->port());
    CHECK(write_all(fd.get(), bytes_of("nonsense"), patience_ms(1000), &reason));
    CHECK(is_closed(fd, 2000));
  }
  const std::lock_guard lock(mutex);
  CHECK(lines.size() == 4);  // the 1st, 2nd, 4th and 8th
  CHECK(begins(lines[0], "refused connection 1 from 127.0.0.1:") &&
        contains(lines[0], "it does not speak the link protocol"));
}

}  // namespace

int main() {
  garbage_is_shown_out();
  a_crowd_does_not_lock_a_peer_out();
  the_silent_are_shown_out_in_time();
  a_wrong_key_proves_nothing();
  a_recorded_proof_does_not_work_twice();
  a_mirror_is_recognised();
  the_old_epoch_the_wrong_rank_and_another_start_are_refused();
  another_version_is_told_so();
  an_impostor_with_the_port_is_not_believed();
  an_epoch_at_work_does_not_notice();
  a_door_checks_epoch_nonce_and_key();
  refusals_are_logged_sparsely();
  return coxswain::testing::finish("comm_strangers_test");
}

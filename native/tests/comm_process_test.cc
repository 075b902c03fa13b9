// Ranks as processes: sums over shm and tcp, and what a killed or stopped peer leaves behind.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>

#include "comm/shm_segment.h"
#include "tests/comm_fabrics.h"

using namespace coxswain;
using namespace coxswain::comm;
using namespace coxswain::comm::testing;

namespace {

constexpr int kRanksMax = 4;

// Pipes by which every process tells every other its port, made before the forks.
struct PortExchange {
  std::array<std::array<int, 2>, kRanksMax> pipes{};
  PortExchange() {
    for (auto& ends : pipes) CHECK(pipe(ends.data()) == 0);
  }
  ~PortExchange() {
    for (auto& ends : pipes) {
      close(ends[0]);
      close(ends[1]);
    }
  }
  // Gives `port` to all others; returns theirs.
  std::vector<uint16_t> exchange(int rank, int count, uint16_t port) const {
    std::vector<uint16_t> ports(static_cast<size_t>(count), port);
    const std::array<uint16_t, 2> mine = {static_cast<uint16_t>(rank), port};
    for (int peer = 0; peer < count; ++peer) {
      if (peer != rank && write(pipes[static_cast<size_t>(peer)][1], &mine, sizeof mine) !=
                              static_cast<ssize_t>(sizeof mine)) {
        _exit(90);
      }
    }
    for (int i = 1; i < count; ++i) {
      std::array<uint16_t, 2> theirs;
      if (read(pipes[static_cast<size_t>(rank)][0], &theirs, sizeof theirs) !=
          static_cast<ssize_t>(sizeof theirs)) {
        _exit(91);
      }
      ports[theirs[0]] = theirs[1];
    }
    return ports;
  }
};

struct Member {
  std::unique_ptr<Fabric> fabric;
  Opened opened;
};

Member join(const PortExchange& exchange, int rank, int count, TransportKind kind) {
  Member member;
  member.fabric = make_fabric("127.0.0.1");
  const auto ports = exchange.exchange(rank, count, member.fabric->port());
  EpochSpec spec;
  spec.epoch = 3;
  spec.incarnation = kIncarnation;
  spec.rank = rank;
  spec.data_key = kDataKey;
  for (int peer = 0; peer < count; ++peer) {
    if (peer != rank)
      spec.links.push_back({peer, kind, "127.0.0.1", ports[static_cast<size_t>(peer)]});
  }
  member.opened = open_one(*member.fabric, spec);
  return member;
}

// Forks ranks 1..count-1; each runs `body` and exits with 0 when no check failed.
template <typename Body>
std::vector<pid_t> fork_ranks(const PortExchange& exchange, int count, TransportKind kind,
                              Body body) {
  std::vector<pid_t> children;
  for (int rank = 1; rank < count; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      Member member = join(exchange, rank, count, kind);
      if (!member.opened.plane) _exit(92);
      const std::string failure = failure_of([&] { body(*member.opened.plane); });
      expect_text(failure, failure.empty());
      member.opened.plane.reset();
      _exit(failure.empty() && coxswain::testing::failed == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  return children;
}

int exit_of(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void processes_hold_the_same_bits(TransportKind kind, int count) {
  const PortExchange exchange;
  const auto body = [&](DataPlane& plane) {
    uint64_t round = 0;
    for (const size_t size : {576, 8192, 8193, 65'536, 1'000'003, 1}) {
      CHECK(reduces_like_the_twin(plane, ranks_to(count), size, ++round));
    }
  };
  const auto children = fork_ranks(exchange, count, kind, body);
  Member member = join(exchange, 0, count, kind);
  CHECK(expect_text(member.opened.failure, member.opened.plane != nullptr));
  CHECK(failure_of([&] { body(*member.opened.plane); }).empty());
  for (const pid_t child : children) CHECK(exit_of(child) == 0);
  CHECK(no_segment_is_left());
}

void a_killed_peer_is_noticed_and_leaves_nothing(TransportKind kind) {
  const PortExchange exchange;
  const auto children = fork_ranks(exchange, 2, kind, [](DataPlane& plane) {
    std::vector<float> data(576);
    reduce(plane, ranks_to(2), data, wait_ms(5000));
    for (;;) pause();
  });
  Member member = join(exchange, 0, 2, kind);
  std::vector<float> data(576);
  reduce(*member.opened.plane, ranks_to(2), data, wait_ms(5000));
  std::string failure;
  int64_t left_at = 0;
  std::thread waiting([&] {
    failure =
        failure_of([&] { reduce(*member.opened.plane, ranks_to(2), data, wait_ms(30'000, 812)); });
    left_at = now_ns();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const int64_t killed_at = now_ns();
  kill(children[0], SIGKILL);
  waiting.join();
  CHECK(expect_text(failure, begins(failure,
                                    "LINK_CLOSED: rank 0 lost rank 1 in step 812, layer 7, "
                                    "attention (epoch 3, 0 of 4608 bytes)")));
  CHECK(left_at - killed_at < 1'000'000'000);
  CHECK(exit_of(children[0]) == 128 + SIGKILL);
  CHECK(no_segment_is_left());
}

void a_stopped_peer_runs_into_the_deadline(TransportKind kind) {
  const PortExchange exchange;
  const auto children = fork_ranks(exchange, 2, kind, [](DataPlane&) {
    for (;;) pause();
  });
  Member member = join(exchange, 0, 2, kind);
  kill(children[0], SIGSTOP);
  std::vector<float> data(576);
  const std::string failure =
      failure_of([&] { reduce(*member.opened.plane, ranks_to(2), data, wait_ms(300, 812)); });
  CHECK(expect_text(failure, begins(failure, "LINK_TIMEOUT: rank 0 waited ") &&
                                 contains(failure,
                                          " ms for rank 1 in step 812, layer 7, attention "
                                          "(epoch 3, 0 of 4608 bytes)")));
  kill(children[0], SIGKILL);
  exit_of(children[0]);
}

// A host of its own as far as shared memory goes: same kernel, same network, another /dev/shm.
bool move_to_other_memory() {
  const std::string map = "0 " + std::to_string(geteuid()) + " 1";
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  const int fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
  const bool mapped =
      fd >= 0 && write(fd, map.data(), map.size()) == static_cast<ssize_t>(map.size());
  if (fd >= 0) close(fd);
  return mapped && mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=1m") == 0;
}

// Rank 1 lives in another mount namespace; returns what rank 0 opened, or nothing where the system
// does not let us make one.
std::optional<Opened> open_across_namespaces(TransportKind kind, int* exit_code) {
  const PortExchange exchange;
  int allowed[2];
  CHECK(pipe(allowed) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const char moved = move_to_other_memory() ? 1 : 0;
    if (write(allowed[1], &moved, 1) != 1 || moved == 0) _exit(0);
    const Member member = join(exchange, 1, 2, kind);
    const bool as_expected =
        kind == TransportKind::kShm
            ? contains(member.opened.failure, "cannot open the peer's shared memory")
            : member.opened.plane != nullptr;
    expect_text(member.opened.failure, as_expected);
    _exit(as_expected ? 0 : 1);
  }
  char moved = 0;
  CHECK(read(allowed[0], &moved, 1) == 1);
  close(allowed[0]);
  close(allowed[1]);
  std::optional<Opened> opened;
  if (moved != 0) opened = std::move(join(exchange, 0, 2, kind).opened);
  *exit_code = exit_of(child);
  return opened;
}

void ranks_with_separate_memory_use_tcp_or_say_why_not() {
  int exit_code = 0;
  const auto by_itself = open_across_namespaces(TransportKind::kAuto, &exit_code);
  if (!by_itself) {
    std::printf("  skipped: this system lets us make no mount namespace\n");
    return;
  }
  CHECK(exit_code == 0);
  CHECK(expect_text(by_itself->failure, by_itself->reports.size() == 1));
  CHECK(by_itself->reports[0].transport == TransportKind::kTcp);
  CHECK(no_segment_is_left());
  const auto insisting = open_across_namespaces(TransportKind::kShm, &exit_code);
  CHECK(insisting && exit_code == 0);
  CHECK(expect_text(insisting->failure,
                    begins(insisting->failure,
                           "LINK_PROTOCOL: rank 0 and rank 1 cannot be linked: shm "
                           "was asked for: cannot open the peer's shared memory")));
  CHECK(no_segment_is_left());
}

// The window between creating and unlinking a segment: what a kill leaves there is swept later.
void what_a_kill_leaves_between_is_swept() {
  int ready[2];
  CHECK(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto segment = ShmSegment::create();
    const std::string name = segment->name();
    if (write(ready[1], name.data(), name.size()) != static_cast<ssize_t>(name.size())) _exit(1);
    for (;;) pause();
  }
  std::string name(64, '\0');
  const ssize_t n = read(ready[0], name.data(), name.size());
  CHECK(n > 0);
  name.resize(static_cast<size_t>(n));
  const std::filesystem::path path = "/dev/shm" + name;
  CHECK(std::filesystem::exists(path));
  const auto age = [&] {
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() - std::chrono::minutes(5));
  };
  // Its creator lives and holds the lock.
  age();
  sweep_stale_segments();
  CHECK(std::filesystem::exists(path));
  kill(child, SIGKILL);
  exit_of(child);
  // Old enough, and nobody holds it.
  sweep_stale_segments();
  CHECK(!std::filesystem::exists(path));
  close(ready[0]);
  close(ready[1]);
}

void segments_are_private_and_proved() {
  auto created = ShmSegment::create();
  const std::filesystem::path path = "/dev/shm" + created->name();
  CHECK((std::filesystem::status(path).permissions() & std::filesystem::perms::all) ==
        (std::filesystem::perms::owner_read | std::filesystem::perms::owner_write));
  auto opened = ShmSegment::open(created->name());
  CHECK(opened->state().token == created->state().token);
  created->unlink();
  CHECK(!std::filesystem::exists(path));
  CHECK(begins(failure_of([&] { ShmSegment::open(created->name()); }),
               "LINK_PROTOCOL: cannot open the peer's shared memory"));
  CHECK(begins(failure_of([] { ShmSegment::open("/../etc/passwd"); }),
               "LINK_PROTOCOL: the peer names no segment of ours"));
}

}  // namespace

int main() {
  // Forks come before any thread of this process is left running.
  for (const TransportKind kind : {TransportKind::kShm, TransportKind::kTcp}) {
    processes_hold_the_same_bits(kind, 2);
    processes_hold_the_same_bits(kind, 3);
    a_killed_peer_is_noticed_and_leaves_nothing(kind);
    a_stopped_peer_runs_into_the_deadline(kind);
  }
  ranks_with_separate_memory_use_tcp_or_say_why_not();
  what_a_kill_leaves_between_is_swept();
  segments_are_private_and_proved();
  return coxswain::testing::finish("comm_process_test");
}

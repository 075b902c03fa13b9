// Names of hosts: a resolver that hangs holds nobody beyond its deadline or its fence. The program
// has a getaddrinfo of its own, which hangs for one name and asks the system for all others.
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>

#include <atomic>
#include <cstring>

#include "comm/resolve.h"
#include "tests/comm_fabrics.h"

using namespace coxswain;
using namespace coxswain::comm;
using namespace coxswain::comm::testing;

namespace {

constexpr const char* kHanging = "hanging.invalid";
std::atomic<bool> released{false};
constexpr uint16_t kAskedOften = 2;
std::atomic<int> questions{0};  // for kHanging and that port

}  // namespace

extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                           addrinfo** list) {
  if (std::strcmp(host, kHanging) == 0 && (hints->ai_flags & AI_NUMERICHOST) == 0) {
    if (service == std::to_string(kAskedOften)) ++questions;
    while (!released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return EAI_NONAME;
  }
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto system = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return system(host, service, hints, list);
}

namespace {

void an_open_fails_by_its_deadline_and_names_host_and_peer() {
  Cluster cluster(2);
  EpochSpec spec = cluster.spec(1, 1, TransportKind::kTcp);
  spec.links[0].host = kHanging;
  spec.open_timeout_ns = 100'000'000;
  const Opened opened = open_one(*cluster.fabrics[1], spec);
  CHECK(expect_text(opened.failure,
                    begins(opened.failure,
                           "LINK_TIMEOUT: rank 1 could not reach rank 0 at "
                           "hanging.invalid:") &&
                        contains(opened.failure, "its name was not resolved in time")));
}

void a_fence_ends_the_wait_for_a_name() {
  std::atomic<bool> fence{false};
  std::string failure;
  std::thread waiting([&] {
    std::string reason;
    const Patience patience{now_ns() + 60'000'000'000, &fence};
    failure = failure_of([&] { resolve(kHanging, 1, false, patience, &reason); });
  });
  fence = true;
  waiting.join();
  CHECK(expect_text(failure, begins(failure, "EPOCH_FENCED")));
}

// However often it is asked for.
void a_hanging_name_costs_one_thread() {
  for (int attempt = 0; attempt < 5; ++attempt) {
    std::string reason;
    const Patience patience{now_ns() + 20'000'000, nullptr};
    CHECK(resolve(kHanging, kAskedOften, false, patience, &reason).empty());
    CHECK(expect_text(reason, reason == "its name was not resolved in time"));
  }
  // Its thread may not have come to ask before the last attempt gave up.
  while (questions == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(questions == 1);
}

void names_and_numbers_are_resolved() {
  std::string reason;
  const Patience patience{now_ns() + 10'000'000'000, nullptr};
  for (const char* host : {"127.0.0.1", "::1", "localhost"}) {
    CHECK(!resolve(host, 80, false, patience, &reason).empty());
  }
}

void sockets_and_pipes_are_closed_in_children() {
  const auto closes = [](int fd) { return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; };
  const auto blocks = [](int fd) { return (fcntl(fd, F_GETFL) & O_NONBLOCK) == 0; };
  const Fd listener = listen_on("127.0.0.1", 0);
  std::string reason;
  const Patience patience{now_ns() + 10'000'000'000, nullptr};
  const Fd dialled = connect_to("127.0.0.1", local_port(listener.get()), patience, &reason);
  CHECK(patience.wait_for(listener.get(), POLLIN));
  const Fd accepted = accept_from(listener.get());
  const Pipe pipe = make_pipe();
  for (const Fd* fd : {&listener, &dialled, &accepted, &pipe.read, &pipe.write}) {
    CHECK(*fd && closes(fd->get()) && !blocks(fd->get()));
  }
}

}  // namespace

int main() {
  an_open_fails_by_its_deadline_and_names_host_and_peer();
  a_fence_ends_the_wait_for_a_name();
  a_hanging_name_costs_one_thread();
  names_and_numbers_are_resolved();
  sockets_and_pipes_are_closed_in_children();
  released = true;
  return coxswain::testing::finish("comm_resolve_test");
}

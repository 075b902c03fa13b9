// Time of an all_reduce between two processes of one host, per transport and size: p50 and p99 in
// microseconds of `rounds` back-to-back sums, measured by rank 0. Sizes are of the f32 sum;
// partials travel as f64.
//
//   comm_allreduce_bench [spin_us]      default 1000, as inside a step with free cores
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "comm/comm.h"

using namespace coxswain;
using namespace coxswain::comm;

namespace {

struct Case {
  size_t bytes;
  int rounds;
};
constexpr Case kCases[] = {{4, 20'000},    {2304, 20'000},  {16'384, 10'000},
                           {32'768, 5000}, {262'144, 1000}, {4'194'304, 50}};

// Pipes carry the ports, which processes that fork apart cannot know otherwise.
struct Ends {
  int from_peer, to_peer;
};

void run_rank(int rank, const Ends& ends, TransportKind kind, int64_t spin_ns) {
  auto fabric = make_fabric("127.0.0.1");
  const uint16_t mine = fabric->port();
  uint16_t theirs = 0;
  if (write(ends.to_peer, &mine, sizeof mine) != sizeof mine ||
      read(ends.from_peer, &theirs, sizeof theirs) != sizeof theirs) {
    std::exit(1);
  }
  EpochSpec spec;
  spec.epoch = 1;
  spec.incarnation = std::string(32, 'a');
  spec.rank = rank;
  spec.data_key = std::string(32, 'k');
  spec.links = {{1 - rank, kind, "127.0.0.1", theirs}};
  const std::atomic<bool> fence{false};
  std::vector<LinkReport> reports;
  auto plane = fabric->open(spec, fence, &reports);
  if (rank == 0) {
    std::printf("%s: round trip %.2f us on %s\n", transport_name(reports[0].transport),
                reports[0].round_trip_us, reports[0].interface.c_str());
  }
  const std::vector<int> group = {0, 1};
  for (const Case& c : kCases) {
    std::vector<float> sum(c.bytes / sizeof(float));
    const std::vector<double> partials(sum.size(), 1.0);
    std::vector<int64_t> times(static_cast<size_t>(c.rounds));
    for (size_t i = 0; i < times.size(); ++i) {
      Wait wait;
      const int64_t start = now_ns();
      wait.deadline_ns = start + 10'000'000'000;
      wait.spin_ns = spin_ns;
      plane->all_reduce(group, partials, sum, wait);
      times[i] = now_ns() - start;
    }
    if (rank != 0) continue;
    std::sort(times.begin(), times.end());
    std::printf("  %8zu bytes: p50 %8.2f us  p99 %8.2f us\n", c.bytes,
                static_cast<double>(times[times.size() / 2]) / 1000.0,
                static_cast<double>(times[times.size() * 99 / 100]) / 1000.0);
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t spin_ns = (argc > 1 ? std::atoll(argv[1]) : 1000) * 1000;
  for (const TransportKind kind : {TransportKind::kShm, TransportKind::kTcp}) {
    int up[2];
    int down[2];
    if (pipe(up) != 0 || pipe(down) != 0) return 1;
    std::fflush(stdout);
    const pid_t child = fork();
    try {
      if (child == 0) {
        run_rank(1, {down[0], up[1]}, kind, spin_ns);
        _exit(0);
      }
      run_rank(0, {up[0], down[1]}, kind, spin_ns);
    } catch (const EngineError& error) {
      std::fprintf(stderr, "%s: %s\n", error.code().c_str(), error.what());
      if (child == 0) _exit(1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) return 1;
  }
  return 0;
}

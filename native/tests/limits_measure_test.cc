// The limits are figures of some machine: positive, finite, and labelled. Nothing is asserted about
// how fast it is.
#include <cmath>
#include <cstring>

#include "limits/limits.h"
#include "limits/memory.h"
#include "limits/team.h"
#include "tests/check.h"

using namespace coxswain::limits;

namespace {

bool positive(double value) { return std::isfinite(value) && value > 0; }

void every_thread_runs_every_round() {
  std::atomic<int> prepared = 0;
  std::atomic<int> worked = 0;
  const int64_t ns = fastest_round(3, 4, [&](int) { ++prepared; }, [&](int) { ++worked; });
  CHECK(prepared == 3);
  CHECK(worked == 12);
  CHECK(ns > 0);
}

void limits_of_two_threads() {
  const Limits found = measure(2);
  CHECK(found.threads == 2);
  CHECK(found.read_buffer_bytes >= size_t{256} << 20);
  CHECK(positive(found.read_bytes_per_second));
  CHECK(found.read_loop.streams >= 1);
  CHECK(positive(found.f32.per_second));
  for (const Peak& peak : {found.int8, found.bf16, found.f32}) {
    CHECK((peak.per_second == 0) == (std::strlen(peak.instruction) == 0));
  }
}

void many_threads_share_a_larger_buffer() {
  CHECK(read_buffer_bytes(1) == size_t{256} << 20);
  CHECK(read_buffer_bytes(64) == size_t{4096} << 20);
}

}  // namespace

int main() {
  every_thread_runs_every_round();
  limits_of_two_threads();
  many_threads_share_a_larger_buffer();
  return coxswain::testing::finish("limits_measure_test");
}

// The machine's limits as JSON lines, one for each number of threads given; with --read only the
// read bandwidth, to be taken between other measurements.
//   limits_machine_bench [--read] [threads ...]      default 1
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "limits/limits.h"
#include "limits/memory.h"

using namespace coxswain;

namespace {

limits::Limits reading_only(int threads) {
  limits::Limits found;
  found.threads = threads;
  found.read_buffer_bytes = limits::read_buffer_bytes(threads);
  const limits::ReadResult result = limits::measure_reading(threads, found.read_buffer_bytes);
  found.read_bytes_per_second = result.bytes_per_second;
  found.read_loop = result.loop;
  return found;
}

void print(const limits::Limits& found) {
  const auto peak = [](const char* name, const limits::Peak& value) {
    if (value.per_second == 0) return;
    std::printf(",\"%s\":{\"ops_per_second\":%.0f,\"instruction\":\"%s\"}", name, value.per_second,
                value.instruction);
  };
  std::printf(
      "{\"threads\":%d,\"buffer_bytes\":%zu,\"read_bytes_per_second\":%.0f,"
      "\"read_loop\":{\"streams\":%d,\"ahead_bytes\":%zu,\"huge_pages\":%s}",
      found.threads, found.read_buffer_bytes, found.read_bytes_per_second, found.read_loop.streams,
      found.read_loop.ahead_bytes, found.read_loop.huge_pages ? "true" : "false");
  peak("int8", found.int8);
  peak("bf16", found.bf16);
  peak("f32", found.f32);
  std::printf("}\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  bool read_only = false;
  std::vector<int> counts;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--read") {
      read_only = true;
      continue;
    }
    counts.push_back(std::atoi(argv[i]));
    if (counts.back() < 1 || counts.back() > limits::kThreadsMax) {
      std::fprintf(stderr, "threads are 1 to %d\n", limits::kThreadsMax);
      return 2;
    }
  }
  if (counts.empty()) counts.push_back(1);
  try {
    for (const int threads : counts) {
      print(read_only ? reading_only(threads) : limits::measure(threads));
    }
  } catch (const EngineError& error) {
    std::fprintf(stderr, "%s: %s\n", error.code().c_str(), error.what());
    return 1;
  }
  return 0;
}

#include "limits/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "limits/team.h"

namespace coxswain::limits {
namespace {

constexpr size_t kMegabyte = 1 << 20;
constexpr size_t kLine = 64;
constexpr size_t kStep = 4 * kLine;  // read of one stream before the next has its turn
constexpr int kFirstRounds = 2;      // of every loop
constexpr int kLastRounds = 6;       // of the best few
constexpr size_t kFinalists = 3;

using Words __attribute__((vector_size(16))) = uint64_t;

// Anonymous memory, touched by the threads that will read it.
class Buffer {
 public:
  Buffer(size_t bytes, bool huge) : bytes_(bytes) {
    memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory_ == MAP_FAILED) {
      throw EngineError("MEMORY_EXHAUSTED",
                        "there is no memory to measure the read bandwidth with (" +
                            std::to_string(bytes >> 20) + " MiB)");
    }
#if defined(MADV_HUGEPAGE)
    // Refused where the system has no huge pages; the loop then reads plain ones.
    (void)madvise(memory_, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#else
    (void)huge;
#endif
  }
  ~Buffer() { munmap(memory_, bytes_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  uint8_t* data() { return static_cast<uint8_t*>(memory_); }

 private:
  size_t bytes_;
  void* memory_;
};

// Sums in four registers a stream; the caller keeps the total alive. `length` is what each of the
// Streams neighbouring places has, a multiple of kStep.
template <int Streams, bool Ahead>
uint64_t read_streams(const uint8_t* data, size_t length, size_t ahead) {
  Words sums[4] = {};
  for (size_t at = 0; at < length; at += kStep) {
    for (size_t stream = 0; stream < static_cast<size_t>(Streams); ++stream) {
      const uint8_t* block = data + stream * length + at;
      for (size_t line = 0; line < kStep; line += kLine) {
        if constexpr (Ahead) __builtin_prefetch(block + ahead + line, 0, 2);
        Words words[4];
        std::memcpy(words, block + line, sizeof words);
        sums[0] += words[0];
        sums[1] += words[1];
        sums[2] += words[2];
        sums[3] += words[3];
      }
    }
  }
  const Words sum = sums[0] + sums[1] + sums[2] + sums[3];
  return sum[0] + sum[1];
}

using ReadFunction = uint64_t (*)(const uint8_t*, size_t, size_t);

template <int Streams>
ReadFunction function_for(size_t ahead) {
  return ahead == 0 ? read_streams<Streams, false> : read_streams<Streams, true>;
}

ReadFunction function_for(const ReadLoop& loop) {
  switch (loop.streams) {
    case 1:
      return function_for<1>(loop.ahead_bytes);
    case 2:
      return function_for<2>(loop.ahead_bytes);
    case 4:
      return function_for<4>(loop.ahead_bytes);
    default:
      return function_for<8>(loop.ahead_bytes);
  }
}

constexpr std::array<int, 4> kStreams = {1, 2, 4, 8};
constexpr std::array<size_t, 5> kAhead = {0, 1024, 4096, 8192, 16384};

// Bytes a second of one loop, all threads together.
double rate_of(const ReadLoop& loop, int threads, size_t bytes, Buffer& buffer, int rounds) {
  const size_t streams = static_cast<size_t>(loop.streams);
  const size_t share = bytes / static_cast<size_t>(threads);
  const size_t length = share / streams / kStep * kStep;
  const ReadFunction read = function_for(loop);
  std::vector<uint64_t> sums(static_cast<size_t>(threads) * 8);
  const int64_t ns = fastest_round(
      threads, rounds, [](int) {},
      [&](int thread) {
        const size_t index = static_cast<size_t>(thread);
        sums[index * 8] += read(buffer.data() + index * share, length, loop.ahead_bytes);
      });
  volatile uint64_t kept = 0;
  for (const uint64_t sum : sums) kept = kept + sum;
  return static_cast<double>(length * streams * static_cast<size_t>(threads)) * 1e9 /
         static_cast<double>(ns);
}

void touch(Buffer& buffer, size_t bytes, int threads) {
  const size_t share = bytes / static_cast<size_t>(threads);
  fastest_round(
      threads, 1, [](int) {},
      [&](int thread) {
        std::memset(buffer.data() + static_cast<size_t>(thread) * share, thread + 1, share);
      });
}

}  // namespace

size_t read_buffer_bytes(int threads) {
  return std::max(256 * kMegabyte, 64 * kMegabyte * static_cast<size_t>(threads));
}

ReadResult measure_reading(int threads, size_t bytes) {
  std::vector<ReadResult> results;
  for (const bool huge : {false, true}) {
    // One buffer at a time: the machine may be small.
    Buffer buffer(bytes + *std::max_element(kAhead.begin(), kAhead.end()), huge);
    touch(buffer, bytes, threads);
    std::vector<ReadResult> here;
    for (const int streams : kStreams) {
      for (const size_t ahead : kAhead) {
        const ReadLoop loop{streams, ahead, huge};
        here.push_back({rate_of(loop, threads, bytes, buffer, kFirstRounds), loop});
      }
    }
    std::sort(here.begin(), here.end(), [](const ReadResult& a, const ReadResult& b) {
      return a.bytes_per_second > b.bytes_per_second;
    });
    for (size_t i = 0; i < kFinalists; ++i) {
      const double again = rate_of(here[i].loop, threads, bytes, buffer, kLastRounds);
      results.push_back({std::max(here[i].bytes_per_second, again), here[i].loop});
    }
  }
  return *std::max_element(results.begin(), results.end(),
                           [](const ReadResult& a, const ReadResult& b) {
                             return a.bytes_per_second < b.bytes_per_second;
                           });
}

}  // namespace coxswain::limits

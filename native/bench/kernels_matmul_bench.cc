// Speed of the matrix kernels on one thread: GB/s of weights for one activation row beside the
// measured read bandwidth, and GOP/s (two operations a weight and row) for 64 rows.
//
//   kernels_matmul_bench [type name ...]      COX_ISA chooses the instruction set,
//   COX_CHUNK the columns of a chunk (A8Out; 0: one chain)
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/vector/unroll.h"
#include "tests/kernels_support.h"

using namespace coxswain;
using namespace coxswain::kernels;

namespace {

constexpr int64_t kColumns = 1536;
constexpr int64_t kStreamBytes = 256 << 20;  // far beyond the last-level cache
constexpr int64_t kCachedBytes = 384 << 10;  // well within the second-level cache
constexpr int64_t kPrefillRows = 64;
constexpr int64_t kPrefillOutputs = 576;

// CPU time of this thread: other programs on the machine then only disturb caches and memory.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double seconds_of(auto&& work) {
  const double start = thread_seconds();
  work();
  return thread_seconds() - start;
}

double best_of(int times, auto&& work) {
  double best = 1e9;
  for (int i = 0; i < times; ++i) best = std::min(best, seconds_of(work));
  return best;
}

// Memory as the engine has it: huge pages where the system gives them. A stream over small pages
// waits for address translation, not for memory.
class StreamBytes {
 public:
  explicit StreamBytes(size_t size) : size_(size) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::exit(1);
    data_ = static_cast<uint8_t*>(memory);
#ifdef MADV_HUGEPAGE
    madvise(memory, size, MADV_HUGEPAGE);
#endif
    std::memset(memory, 1, size);
  }
  ~StreamBytes() { munmap(data_, size_); }
  StreamBytes(const StreamBytes&) = delete;
  StreamBytes& operator=(const StreamBytes&) = delete;
  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_;
  size_t size_;
};

using Words __attribute__((vector_size(16))) = uint64_t;

// Reads everything and keeps only a sum.
double read_bandwidth(const StreamBytes& memory) {
  uint64_t total = 0;
  const double seconds = best_of(5, [&] {
    Words sums[16] = {};
    for (size_t at = 0; at + sizeof sums <= memory.size(); at += sizeof sums) {
      const uint8_t* block = memory.data() + at;
      vector::unroll<16>([&](auto i) COX_INLINE_LAMBDA {
        Words words;
        std::memcpy(&words, block + sizeof words * i, sizeof words);
        sums[i] += words;
      });
    }
    for (const Words& sum : sums) total += sum[0] + sum[1];
  });
  if (total == 42) std::printf(" ");  // keeps the sums alive
  return static_cast<double>(memory.size()) / seconds * 1e-9;
}

struct Weights {
  TensorType type;
  int64_t rows;
  size_t bytes;
  const uint8_t* data;
  size_t row_size;  // float types
};

int64_t chunk_columns() {
  static const char* text = std::getenv("COX_CHUNK");
  return text != nullptr ? std::atoi(text) : 0;
}

void multiply(const Kernels& kernels, const Weights& w, const void* acts, const float* x,
              int64_t rows, float* out) {
  if (is_block_type(w.type)) {
    kernels.matmul_a8(w.type, w.data, w.rows, kColumns, acts, rows,
                      {out, nullptr, w.rows, nullptr, chunk_columns()}, 0, w.rows);
  } else {
    kernels.matmul_float(w.type, w.data, w.row_size, kColumns, x, kColumns, rows, nullptr, out,
                         w.rows, 0, w.rows);
  }
}

Weights make_weights(TensorType type, int64_t rows, StreamBytes& memory) {
  testing::Random random(3);
  const std::vector<uint8_t> sample = testing::random_rows(type, 16, kColumns, random);
  const size_t row_size = sample.size() / 16;
  uint8_t* data = memory.data();
  if (!is_block_type(type)) {
    for (int64_t r = 0; r < rows; r += 16) {
      std::memcpy(data + static_cast<size_t>(r) * row_size, sample.data(), sample.size());
    }
    return {type, rows, static_cast<size_t>(rows) * row_size, data, row_size};
  }
  const size_t group = packed_bytes(type, 16, kColumns);
  pack_rows(type, sample.data(), row_size, 0, kColumns, 0, 16, data);
  for (int64_t r = 16; r < rows; r += 16) {
    std::memcpy(data + static_cast<size_t>(r / 16) * group, data, group);
  }
  return {type, rows, packed_bytes(type, rows, kColumns), data, 0};
}

void bench_type(const Kernels& kernels, TensorType type, const StreamBytes& plain) {
  const size_t group =
      is_block_type(type) ? packed_bytes(type, 16, kColumns) : 16 * row_bytes(type, kColumns);
  const int64_t rows = kStreamBytes / static_cast<int64_t>(group) * 16;
  StreamBytes memory(static_cast<size_t>(rows / 16) * group);
  const Weights all = make_weights(type, rows, memory);
  testing::Random random(4);
  const std::vector<float> x = testing::random_floats(kPrefillRows * kColumns, random);
  testing::AlignedBytes acts(quantized_row_bytes(kColumns) * kPrefillRows);
  for (int64_t r = 0; r < kPrefillRows; ++r) {
    kernels.quantize_row(x.data() + r * kColumns, kColumns,
                         acts.data() + static_cast<size_t>(r) * quantized_row_bytes(kColumns));
  }
  std::vector<float> out(static_cast<size_t>(std::max(8 * rows, kPrefillRows * kPrefillOutputs)));
  const double one =
      best_of(5, [&] { multiply(kernels, all, acts.data(), x.data(), 1, out.data()); });
  const double bandwidth = read_bandwidth(plain);  // now, beside it: neighbours come and go
  const double rate = static_cast<double>(all.bytes) / one * 1e-9;
  const double eight =
      best_of(3, [&] { multiply(kernels, all, acts.data(), x.data(), 8, out.data()); });
  Weights cached = all;
  cached.rows = kCachedBytes / static_cast<int64_t>(group) * 16;
  const double once =
      best_of(200, [&] { multiply(kernels, cached, acts.data(), x.data(), 1, out.data()); });
  const double cached_rate =
      static_cast<double>(cached.rows / 16) * static_cast<double>(group) / once * 1e-9;
  Weights small = all;
  small.rows = kPrefillOutputs;
  const double many = best_of(
      12, [&] { multiply(kernels, small, acts.data(), x.data(), kPrefillRows, out.data()); });
  const double operations = 2.0 * kPrefillRows * kPrefillOutputs * kColumns;
  std::printf(
      "%-8s %6.2f bits/weight   1 row %5.1f of %5.1f GB/s (%3.0f %%), cached %5.1f   8 rows %5.1f "
      "GB/s   %lld "
      "rows %6.1f GOP/s\n",
      traits_of(type).name.data(),
      static_cast<double>(group) * 8 / (16.0 * static_cast<double>(kColumns)), rate, bandwidth,
      100 * rate / bandwidth, cached_rate, static_cast<double>(all.bytes) / eight * 1e-9,
      static_cast<long long>(kPrefillRows), operations / many * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  const Kernels& kernels = kernels_for(choose_isa());
  const StreamBytes memory(kStreamBytes);
  std::printf("%s, one thread\n", isa_name(kernels.isa));
  for (const TensorType type : testing::kAllTypes) {
    const std::string_view name = traits_of(type).name;
    const bool wanted =
        argc < 2 ||
        std::any_of(argv + 1, argv + argc, [&](const char* arg) { return name == arg; });
    if (wanted) bench_type(kernels, type, memory);
  }
  return 0;
}

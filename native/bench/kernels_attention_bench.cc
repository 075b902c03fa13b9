// Speed of attention on one thread: one query row (GB/s of the cache) at several depths, and a
// chunk of 64 rows (GFLOP/s). Heads as in a small grouped model: 3 query heads to a KV head of 64
// columns.
//
//   kernels_attention_bench      COX_ISA chooses the instruction set
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <vector>

#include "kernels/kernels.h"
#include "tests/kernels_support.h"

using namespace coxswain;
using namespace coxswain::kernels;

namespace {

constexpr int64_t kHeads = 3;
constexpr int64_t kDim = 64;
constexpr int64_t kChunk = 64;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double time_attention(const Kernels& kernels, AttentionArgs args, int64_t depth, int64_t rows) {
  args.pos0 = depth - rows;
  args.row_count = rows;
  double best = 1e9;
  for (int i = 0; i < 20; ++i) {
    const double start = thread_seconds();
    kernels.attention(args);
    best = std::min(best, thread_seconds() - start);
  }
  return best;
}

void bench(const Kernels& kernels, KvType type, int64_t depth) {
  const int64_t blocks = depth / kKvBlockTokens;
  const size_t block_bytes = static_cast<size_t>(kKvBlockTokens * kDim) * kv_element_bytes(type);
  testing::Random random(5);
  const std::vector<float> values = testing::random_floats(kKvBlockTokens * kDim, random);
  testing::AlignedBytes memory(block_bytes * static_cast<size_t>(2 * blocks));
  std::vector<const void*> pointers;
  for (int64_t b = 0; b < 2 * blocks; ++b) {
    uint8_t* block = memory.data() + static_cast<size_t>(b) * block_bytes;
    testing::fill_block(kernels, values.data(), kDim, type, b < blocks, block);
    pointers.push_back(block);
  }
  const std::vector<float> q = testing::random_floats(kChunk * kHeads * kDim, random);
  std::vector<float> out(q.size());
  std::vector<float> scratch(static_cast<size_t>(attention_scratch_floats(kHeads, kDim)));
  const AttentionArgs args{q.data(),
                           kHeads * kDim,
                           1,
                           0,
                           kHeads,
                           kDim,
                           0.125f,
                           type,
                           pointers.data(),
                           pointers.data() + blocks,
                           out.data(),
                           kHeads * kDim,
                           scratch.data()};
  const double one = time_attention(kernels, args, depth, 1);
  const double many = time_attention(kernels, args, depth, kChunk);
  const double flops = 4.0 * kChunk * kHeads * kDim * static_cast<double>(depth - kChunk / 2);
  std::printf("kv %s depth %5lld   1 row %6.1f GB/s %7.1f us   %lld rows %6.1f GFLOP/s\n",
              type == KvType::kF16 ? "f16" : "f32", static_cast<long long>(depth),
              static_cast<double>(memory.size()) / one * 1e-9, one * 1e6,
              static_cast<long long>(kChunk), flops / many * 1e-9);
}

}  // namespace

int main() {
  const Kernels& kernels = kernels_for(choose_isa());
  std::printf("%s, one thread, %lld query heads of %lld\n", isa_name(kernels.isa),
              static_cast<long long>(kHeads), static_cast<long long>(kDim));
  for (const KvType type : {KvType::kF16, KvType::kF32}) {
    for (const int64_t depth : {256, 2048, 8192}) bench(kernels, type, depth);
  }
  return 0;
}

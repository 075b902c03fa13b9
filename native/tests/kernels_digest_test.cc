// One number for everything the kernels compute from fixed inputs, recorded once: the same on every
// processor, compiler and instruction set. It changes only with the kernel contract, whose version
// is part of the numerics id: then record the new value and raise the version.
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "tests/check.h"
#include "tests/kernels_support.h"

using namespace coxswain;
using namespace coxswain::kernels;
using testing::Random;

namespace {

constexpr uint64_t kRecorded = 0x2b33a5e96031c4cfULL;

class Digest {  // FNV-1a over bytes
 public:
  void add(const void* data, size_t size) {
    const uint8_t* bytes = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < size; ++i) hash_ = (hash_ ^ bytes[i]) * 0x100000001b3ULL;
  }
  void add(const std::vector<float>& values) { add(values.data(), values.size() * sizeof(float)); }
  uint64_t value() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325ULL;
};

void add_products(const Kernels& set, Digest& digest, Random& random) {
  const int64_t k = 512;
  const int64_t n = 20;
  const int64_t rows = 9;
  const std::vector<float> x = testing::random_floats(rows * k, random);
  testing::AlignedBytes acts(quantized_row_bytes(k) * rows);
  for (int64_t r = 0; r < rows; ++r) {
    set.quantize_row(x.data() + r * k, k,
                     acts.data() + static_cast<size_t>(r) * quantized_row_bytes(k));
  }
  digest.add(acts.data(), acts.size());
  std::vector<float> out(static_cast<size_t>(rows * n));
  for (const TensorType type : testing::kAllTypes) {
    const std::vector<uint8_t> w = testing::random_rows(type, n, k, random);
    const size_t w_row = row_bytes(type, k);
    if (is_block_type(type)) {
      testing::AlignedBytes packed(packed_bytes(type, n, k));
      pack_rows(type, w.data(), w_row, 0, k, 0, n, packed.data());
      digest.add(packed.data(), packed.size());
      std::vector<double> partials(out.size());
      set.matmul_a8(type, packed.data(), n, k, acts.data(), rows,
                    {nullptr, partials.data(), n, nullptr, 64}, 0, n);
      digest.add(partials.data(), partials.size() * sizeof(double));
      set.matmul_a8(type, packed.data(), n, k, acts.data(), rows,
                    {out.data(), nullptr, n, x.data(), 0}, 0, n);
    } else {
      set.matmul_float(type, w.data(), w_row, k, x.data(), k, rows, nullptr, out.data(), n, 0, n);
    }
    digest.add(out);
  }
}

void add_between(const Kernels& set, Digest& digest, Random& random) {
  const int64_t n = 300;
  const std::vector<float> x = testing::random_floats(n, random);
  const std::vector<float> w = testing::random_floats(n, random);
  std::vector<float> y(static_cast<size_t>(n));
  set.rms_norm(x.data(), w.data(), 1e-6f, n, y.data());
  digest.add(y);
  set.swiglu(x.data(), w.data(), n, y.data());
  digest.add(y);
  set.rope(y.data(), 3, 100, 80, x.data(), w.data(), RopeStyle::kInterleaved);
  set.rope(y.data(), 3, 100, 80, w.data(), x.data(), RopeStyle::kHalfSplit);
  digest.add(y);
  float parts[2];
  set.max_sum_exp(y.data(), n, &parts[0], &parts[1]);
  digest.add(parts, sizeof parts);
  for (int i = 1; i < 200; ++i) {
    double values[4];
    exact_sincos(i * 1234.5678, &values[0], &values[1]);
    values[2] = exact_pow(10000.0, -i / 100.0);
    values[3] = exact_log(i * 0.77);
    digest.add(values, sizeof values);
  }
}

void add_attention(const Kernels& set, Digest& digest, Random& random) {
  const int64_t dim = 72;
  const int64_t heads = 3;
  const int64_t rows = 7;
  std::vector<std::vector<uint8_t>> blocks;
  std::vector<const void*> pointers;
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> values = testing::random_floats(kKvBlockTokens * dim, random);
    blocks.emplace_back(static_cast<size_t>(2 * kKvBlockTokens * dim));
    testing::fill_block(set, values.data(), dim, KvType::kF16, i < 2, blocks.back().data());
  }
  for (const auto& block : blocks) pointers.push_back(block.data());
  const std::vector<float> q = testing::random_floats(rows * heads * dim, random);
  std::vector<float> out(q.size());
  std::vector<float> scratch(static_cast<size_t>(attention_scratch_floats(heads, dim)));
  set.attention({q.data(), heads * dim, rows, 251, heads, dim, 0.2f, KvType::kF16, pointers.data(),
                 pointers.data() + 2, out.data(), heads * dim, scratch.data()});
  digest.add(out);
}

}  // namespace

int main() {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kNeon}) {
    if (!isa_available(isa)) continue;
    const Kernels& set = kernels_for(isa);
    Digest digest;
    Random random(2026);
    add_products(set, digest, random);
    add_between(set, digest, random);
    add_attention(set, digest, random);
    if (!CHECK(digest.value() == kRecorded)) {
      std::fprintf(stderr, "  %s: 0x%016llx\n", isa_name(isa),
                   static_cast<unsigned long long>(digest.value()));
    }
  }
  return testing::finish("kernels_digest_test");
}

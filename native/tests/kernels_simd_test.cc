// Every instruction set of this CPU against the scalar reference, bit for bit: all types, odd
// shapes, tails, special values. COX_ISA does not matter here; sets that the CPU lacks are named
// and skipped.
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/layout.h"
#if defined(__aarch64__)
#include "kernels/neon/table.h"
#endif
#include "tests/check.h"
#include "tests/kernels_support.h"

using namespace coxswain;
using namespace coxswain::kernels;
using testing::Random;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const Kernels& reference() { return kernels_for(Isa::kScalar); }

void report(bool ok, const Kernels& set, const std::string& what) {
  if (!CHECK(ok)) std::fprintf(stderr, "  %s: %s\n", isa_name(set.isa), what.c_str());
}

std::vector<float> quantizer_input(int64_t k, int64_t variant, Random& random) {
  std::vector<float> x = testing::random_floats(k, random);
  const float factors[] = {1.0f, 1e-3f, 1e30f, 1e-37f, 1e-39f, 1e-42f};
  for (int64_t i = 0; i < k; ++i) x[static_cast<size_t>(i)] *= factors[(variant + i / 32) % 6];
  float* at = x.data() + random.below(k / 32) * 32 + random.below(32);
  if (variant == 1) *at = kNan;
  if (variant == 2) *at = -kInf;
  if (variant == 3) std::fill_n(x.begin(), 32, -0.0f);
  // Exact halves of a step: the rounding to even shows.
  if (variant == 4) {
    for (int i = 0; i < 32; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i) - 15.5f;
    x[0] = 127.0f;
  }
  return x;
}

void check_quantize(const Kernels& set, Random& random) {
  for (const int64_t k : {32, 64, 576, 1536}) {
    for (int64_t variant = 0; variant < 6; ++variant) {
      const std::vector<float> x = quantizer_input(k, variant, random);
      testing::AlignedBytes expected(quantized_row_bytes(k));
      testing::AlignedBytes got(quantized_row_bytes(k));
      reference().quantize_row(x.data(), k, expected.data());
      set.quantize_row(x.data(), k, got.data());
      report(std::memcmp(expected.data(), got.data(), got.size()) == 0, set,
             "quantize_row k=" + std::to_string(k) + " variant " + std::to_string(variant));
    }
  }
}

struct Shape {
  int64_t rows, n, k, n0, n1;
};

// Activations as extreme as the format allows: all codes at +-127.
void make_extreme(float* x, int64_t count, Random& random) {
  for (int64_t i = 0; i < count; ++i) x[i] = random.below(2) == 0 ? -2.0f : 2.0f;
}

// Scales that no quantiser writes but a file may hold: infinite, NaN, subnormal, negative zero,
// largest.
void put_special_scales(TensorType type, std::vector<uint8_t>& w) {
  const size_t step = traits_of(type).block_bytes;
  const uint16_t halves[] = {0x7c00, 0xfc00, 0x7e00, 0x0001, 0x83ff, 0x8000, 0x7bff};
  const uint8_t exponents[] = {0, 1, 2, 253, 254, 255, 127};
  size_t which = 0;
  for (size_t at = 0; at < w.size(); at += 5 * step, which = (which + 1) % 7) {
    if (type == TensorType::kMXFP4) {
      w[at] = exponents[which];
    } else {
      std::memcpy(&w[at + static_cast<size_t>(testing::scale_offset(type))], &halves[which], 2);
    }
    if (testing::minimum_offset(type) >= 0) {
      std::memcpy(&w[at + static_cast<size_t>(testing::minimum_offset(type))], &halves[6 - which],
                  2);
    }
  }
}

void check_a8(const Kernels& set, TensorType type, const Shape& s, Random& random) {
  std::vector<uint8_t> w = testing::random_rows(type, s.n, s.k, random);
  if (s.n == 37) put_special_scales(type, w);
  testing::AlignedBytes packed(packed_bytes(type, s.n, s.k));
  const size_t w_row = w.size() / static_cast<size_t>(s.n);
  pack_rows(type, w.data(), w_row, 0, s.k, 0, s.n, packed.data());
  std::vector<float> x = testing::random_floats(s.rows * s.k, random);
  make_extreme(x.data(), s.k / 32 * 32, random);
  if (s.rows > 2) x[static_cast<size_t>(2 * s.k + 5)] = kNan;
  const size_t row_size = quantized_row_bytes(s.k);
  testing::AlignedBytes acts(row_size * static_cast<size_t>(s.rows));
  for (int64_t r = 0; r < s.rows; ++r) {
    reference().quantize_row(x.data() + r * s.k, s.k,
                             acts.data() + static_cast<size_t>(r) * row_size);
  }
  const std::vector<float> bias = testing::random_floats(s.n, random);
  const std::string what = std::string("matmul_a8 ") + std::string(traits_of(type).name) +
                           " rows " + std::to_string(s.rows) + " n " + std::to_string(s.n) + " k " +
                           std::to_string(s.k) + " chunk ";
  const int64_t ld = s.n + 3;
  for (const int64_t chunk : {0, 64, 128}) {
    for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
      std::vector<float> expected(static_cast<size_t>(s.rows * ld), 77.0f);
      std::vector<float> got = expected;
      reference().matmul_a8(type, packed.data(), s.n, s.k, acts.data(), s.rows,
                            {expected.data(), nullptr, ld, b, chunk}, s.n0, s.n1);
      set.matmul_a8(type, packed.data(), s.n, s.k, acts.data(), s.rows,
                    {got.data(), nullptr, ld, b, chunk}, s.n0, s.n1);
      report(testing::same_bits(expected, got), set, what + std::to_string(chunk));
    }
    if (chunk == 0) continue;
    std::vector<double> expected(static_cast<size_t>(s.rows * ld), 77.0);
    std::vector<double> got = expected;
    reference().matmul_a8(type, packed.data(), s.n, s.k, acts.data(), s.rows,
                          {nullptr, expected.data(), ld, nullptr, chunk}, s.n0, s.n1);
    set.matmul_a8(type, packed.data(), s.n, s.k, acts.data(), s.rows,
                  {nullptr, got.data(), ld, nullptr, chunk}, s.n0, s.n1);
    report(testing::same_bits(expected, got), set, what + std::to_string(chunk) + " in f64");
  }
}

void check_float(const Kernels& set, TensorType type, const Shape& s, Random& random) {
  const std::vector<uint8_t> w = testing::random_rows(type, s.n, s.k, random);
  const int64_t ldx = s.k + 5;
  std::vector<float> x = testing::random_floats(s.rows * ldx, random);
  if (s.rows > 1) x[static_cast<size_t>(ldx + s.k - 1)] = kInf;
  const std::vector<float> bias = testing::random_floats(s.n, random);
  for (const float* b : {static_cast<const float*>(nullptr), bias.data()}) {
    std::vector<float> expected(static_cast<size_t>(s.rows * s.n), 77.0f);
    std::vector<float> got = expected;
    const size_t stride = w.size() / static_cast<size_t>(s.n);
    reference().matmul_float(type, w.data(), stride, s.k, x.data(), ldx, s.rows, b, expected.data(),
                             s.n, s.n0, s.n1);
    set.matmul_float(type, w.data(), stride, s.k, x.data(), ldx, s.rows, b, got.data(), s.n, s.n0,
                     s.n1);
    report(testing::same_bits(expected, got), set,
           std::string("matmul_float ") + std::string(traits_of(type).name) + " rows " +
               std::to_string(s.rows) + " n " + std::to_string(s.n) + " k " + std::to_string(s.k));
  }
}

void check_matmuls(const Kernels& set, Random& random) {
  for (const TensorType type : testing::kAllTypes) {
    if (is_block_type(type)) {
      const int64_t block = traits_of(type).block_elements;
      for (int64_t rows = 1; rows <= 40; rows += rows < 18 ? 1 : 11) {
        check_a8(set, type, {rows, 16, block, 0, 16}, random);
      }
      check_a8(set, type, {3, 37, 256, 0, 37}, random);
      check_a8(set, type, {9, 53, 768, 16, 53}, random);
      check_a8(set, type, {8, 64, 1536, 16, 48}, random);
      check_a8(set, type, {1, 1, 512, 0, 1}, random);
      if (block == 32) {
        check_a8(set, type, {13, 20, 96, 0, 20}, random);
        check_a8(set, type, {4, 32, 576, 0, 32}, random);
      }
    } else {
      for (int64_t rows = 1; rows <= 11; ++rows)
        check_float(set, type, {rows, 9, 64, 0, 9}, random);
      for (const int64_t k : {1, 7, 15, 16, 17, 33, 100, 576, 1000}) {
        check_float(set, type, {5, 11, k, 3, 10}, random);
        check_float(set, type, {1, 6, k, 0, 6}, random);
      }
      check_float(set, type, {70, 5, 1536, 0, 5}, random);
    }
  }
}

const std::vector<int64_t> kLengths = {1, 7, 8, 15, 16, 17, 31, 48, 100, 576, 1537};

std::vector<float> special_floats(int64_t n, Random& random) {
  std::vector<float> x = testing::random_floats(n, random);
  const float specials[] = {0.0f,    -0.0f,  88.72f,  88.73f, 89.5f,  -87.4f, -88.1f, -103.9f,
                            -104.1f, 1e-40f, -1e-40f, 1e30f,  -1e30f, kInf,   -kInf};
  for (int64_t i = 0; i < n; i += 3) x[static_cast<size_t>(i)] = specials[random.below(15)];
  return x;
}

void check_elementwise(const Kernels& set, Random& random) {
  for (const int64_t n : kLengths) {
    const std::string size = " n=" + std::to_string(n);
    const size_t count = static_cast<size_t>(n);
    const std::vector<float> x = testing::random_floats(n, random);
    const std::vector<float> y = testing::random_floats(n, random);
    const std::vector<float> special = special_floats(n, random);
    std::vector<float> a(count + 1, 5.0f);
    std::vector<float> b = a;
    reference().rms_norm(x.data(), y.data(), 1e-5f, n, a.data());
    set.rms_norm(x.data(), y.data(), 1e-5f, n, b.data());
    report(testing::same_bits(a, b), set, "rms_norm" + size);
    std::copy(x.begin(), x.end(), b.begin());
    set.rms_norm(b.data(), y.data(), 1e-5f, n, b.data());
    report(testing::same_bits(a, b), set, "rms_norm in place" + size);
    reference().swiglu(special.data(), y.data(), n, a.data());
    set.swiglu(special.data(), y.data(), n, b.data());
    report(testing::same_bits(a, b), set, "swiglu" + size);
    reference().add(a.data(), special.data(), n);
    set.add(b.data(), special.data(), n);
    report(testing::same_bits(a, b), set, "add" + size);
    for (const KvType type : {KvType::kF32, KvType::kF16}) {
      std::vector<uint8_t> c(kv_element_bytes(type) * count + 1, 9);
      std::vector<uint8_t> d = c;
      std::vector<float> wide = special;
      if (n > 4) wide[4] = 65519.9f, wide[3] = 65520.0f, wide[2] = 5.9e-8f, wide[1] = kNan;
      reference().store_value(wide.data(), n, type, c.data());
      set.store_value(wide.data(), n, type, d.data());
      report(c == d, set, "store_value" + size);
      std::vector<uint8_t> e(kv_element_bytes(type) * count * 32, 9);
      std::vector<uint8_t> f = e;
      reference().store_key(wide.data(), n, type, e.data(), 21);
      set.store_key(wide.data(), n, type, f.data(), 21);
      report(e == f, set, "store_key" + size);
    }
  }
}

void check_max_sum(const Kernels& set, Random& random) {
  for (const int64_t n : {0, 1, 3, 16, 17, 40, 1000, 49152}) {
    for (int variant = 0; variant < 3; ++variant) {
      std::vector<float> x = testing::random_floats(n, random);
      for (float& v : x) v *= variant == 0 ? 3.0f : variant == 1 ? 60.0f : 0.0f;
      float expected[2];
      float got[2];
      reference().max_sum_exp(x.data(), n, &expected[0], &expected[1]);
      set.max_sum_exp(x.data(), n, &got[0], &got[1]);
      report(testing::same_bits(expected[0], got[0]) && testing::same_bits(expected[1], got[1]),
             set, "max_sum_exp n=" + std::to_string(n));
    }
  }
}

void check_rope(const Kernels& set, Random& random) {
  for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalfSplit}) {
    for (const int64_t n_rot : {2, 8, 16, 30, 32, 64, 96, 128}) {
      for (const int64_t extra : {0, 8}) {
        const int64_t dim = n_rot + extra;
        std::vector<float> a = testing::random_floats(3 * dim, random);
        std::vector<float> b = a;
        const std::vector<float> cos = testing::random_floats(n_rot / 2, random);
        const std::vector<float> sin = testing::random_floats(n_rot / 2, random);
        reference().rope(a.data(), 3, dim, n_rot, cos.data(), sin.data(), style);
        set.rope(b.data(), 3, dim, n_rot, cos.data(), sin.data(), style);
        report(testing::same_bits(a, b), set, "rope n_rot=" + std::to_string(n_rot));
      }
    }
  }
}

struct AttentionShape {
  int64_t rows, pos0, heads, dim;
};

void check_attention(const Kernels& set, const AttentionShape& s, KvType type, Random& random) {
  const int64_t visible = s.pos0 + s.rows;
  const int64_t blocks = (visible + kKvBlockTokens - 1) / kKvBlockTokens;
  const size_t block_size = static_cast<size_t>(kKvBlockTokens * s.dim) * kv_element_bytes(type);
  std::vector<std::vector<uint8_t>> storage;
  std::vector<const void*> pointers[2];
  for (int which = 0; which < 2; ++which) {
    for (int64_t b = 0; b < blocks; ++b) {
      // Positions that no query sees hold NaN: touching them shows.
      std::vector<float> values = testing::random_floats(kKvBlockTokens * s.dim, random);
      const int64_t used = std::min(visible - b * kKvBlockTokens, kKvBlockTokens);
      std::fill(values.begin() + used * s.dim, values.end(), kNan);
      storage.emplace_back(block_size);
      testing::fill_block(reference(), values.data(), s.dim, type, which == 0,
                          storage.back().data());
    }
  }
  for (size_t i = 0; i < storage.size(); ++i) {
    pointers[i / static_cast<size_t>(blocks)].push_back(storage[i].data());
  }
  const int64_t stride = s.heads * s.dim + 8;
  const std::vector<float> q = testing::random_floats(s.rows * stride, random);
  std::vector<float> expected(static_cast<size_t>(s.rows * stride), 3.0f);
  std::vector<float> got = expected;
  std::vector<float> scratch(static_cast<size_t>(attention_scratch_floats(s.heads, s.dim)));
  AttentionArgs args{q.data(),
                     stride,
                     s.rows,
                     s.pos0,
                     s.heads,
                     s.dim,
                     0.3f,
                     type,
                     pointers[0].data(),
                     pointers[1].data(),
                     expected.data(),
                     stride,
                     scratch.data()};
  reference().attention(args);
  args.out = got.data();
  set.attention(args);
  report(testing::same_bits(expected, got), set,
         "attention rows " + std::to_string(s.rows) + " pos0 " + std::to_string(s.pos0) +
             " heads " + std::to_string(s.heads) + " dim " + std::to_string(s.dim));
}

void check_attentions(const Kernels& set, Random& random) {
  for (const KvType type : {KvType::kF32, KvType::kF16}) {
    for (const int64_t dim : {8, 16, 24, 32, 64, 80, 96, 128, 256}) {
      check_attention(set, {1, 0, 1, dim}, type, random);
      check_attention(set, {5, 250, 3, dim}, type, random);
    }
    check_attention(set, {1, 255, 4, 64}, type, random);
    check_attention(set, {1, 256, 7, 64}, type, random);
    check_attention(set, {40, 0, 3, 64}, type, random);
    check_attention(set, {20, 500, 2, 32}, type, random);
    check_attention(set, {3, 1000, 17, 64}, type, random);
    check_attention(set, {33, 240, 1, 16}, type, random);
  }
}

}  // namespace

int main() {
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kNeon}) {
    if (!isa_available(isa)) {
      std::printf("not on this CPU: %s\n", isa_name(isa));
      continue;
    }
    const Kernels& set = kernels_for(isa);
    CHECK(set.isa == isa);
    Random random(1);
    check_quantize(set, random);
    check_matmuls(set, random);
    check_elementwise(set, random);
    check_max_sum(set, random);
    check_rope(set, random);
    check_attentions(set, random);
#if defined(__aarch64__)
    // The set takes the dot-product instruction where there is one; the other product runs
    // everywhere.
    Kernels plain = set;
    plain.matmul_a8 = neon::matmul_a8_plain;
    check_matmuls(plain, random);
#endif
  }
  return testing::finish("kernels_simd_test");
}

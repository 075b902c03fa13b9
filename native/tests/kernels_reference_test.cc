// What the kernels compute, against plain double-precision formulas, on every instruction set of
// this CPU; and the promises of invariance: a row alone equals the row in a batch, a cut of the
// columns or rows equals the whole.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "base/half.h"
#include "kernels/kernels.h"
#include "kernels/layout.h"
#include "tests/check.h"
#include "tests/kernels_support.h"

using namespace coxswain;
using namespace coxswain::kernels;
using testing::Random;

namespace {

bool close(double got, double expected, double tolerance) {
  const bool ok = std::fabs(got - expected) <= tolerance;
  if (!ok) std::fprintf(stderr, "  got %.9g, expected %.9g\n", got, expected);
  return ok;
}

double ulp_distance(float got, double expected) {
  const float rounded = static_cast<float>(expected);
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0.0 : 1e9;
  const double step = static_cast<double>(std::nextafter(rounded, 2.0f * rounded + 1.0f)) -
                      static_cast<double>(rounded);
  return std::fabs(static_cast<double>(got) - expected) / step;
}

void check_exp() {
  double worst = 0.0;
  for (double x = -110.0; x < 92.0; x += 0.00173) {
    const float argument = static_cast<float>(x);
    const double expected = std::exp(static_cast<double>(argument));
    worst = std::max(worst, ulp_distance(exact_exp(argument), expected));
  }
  if (!CHECK(worst <= 1.0)) std::fprintf(stderr, "  exact_exp is off by %.3f ulp\n", worst);
  CHECK(exact_exp(0.0f) == 1.0f && exact_exp(-0.0f) == 1.0f);
  CHECK(exact_exp(-std::numeric_limits<float>::infinity()) == 0.0f);
  CHECK(exact_exp(std::numeric_limits<float>::infinity()) ==
        std::numeric_limits<float>::infinity());
  CHECK(std::isnan(exact_exp(std::numeric_limits<float>::quiet_NaN())));
}

void check_double_functions() {
  double worst = 0.0;
  for (int i = 0; i < 20000; ++i) {
    const double angle = (i % 2 == 0 ? 1.0 : -1.0) * std::pow(1e6, i / 20000.0) * 0.999;
    double s = 0.0;
    double c = 0.0;
    exact_sincos(angle, &s, &c);
    worst = std::max({worst, std::fabs(s - std::sin(angle)), std::fabs(c - std::cos(angle))});
    const double base = 1.0 + i * 50.0;
    const double exponent = -i / 20000.0;
    const double power = std::pow(base, exponent);
    worst = std::max(worst, std::fabs(exact_pow(base, exponent) - power) / power);
    worst = std::max(worst, std::fabs(exact_log(base) - std::log(base)) / (1.0 + std::log(base)));
  }
  if (!CHECK(worst <= 1e-14)) std::fprintf(stderr, "  off by %.3g\n", worst);
}

void check_quantized_row(const Kernels& set, Random& random) {
  const int64_t k = 96;
  const std::vector<float> x = testing::random_floats(k, random);
  std::vector<ActivationBlock> row(3);
  set.quantize_row(x.data(), k, row.data());
  for (int64_t b = 0; b < 3; ++b) {
    const ActivationBlock& block = row[static_cast<size_t>(b)];
    float absmax = 0.0f;
    int32_t sums[2] = {0, 0};
    int largest = 0;
    for (int64_t i = 0; i < 32; ++i) {
      const float value = x[static_cast<size_t>(32 * b + i)];
      absmax = std::max(absmax, std::fabs(value));
      sums[i / 16] += block.q[i];
      largest = std::max(largest, std::abs(static_cast<int>(block.q[i])));
      CHECK(std::fabs(static_cast<float>(block.q[i]) * block.scale - value) <=
            0.5001f * block.scale);
    }
    CHECK(block.scale == absmax / 127.0f);
    CHECK(largest == 127);
    CHECK(block.neg_sum[0] == -sums[0] && block.neg_sum[1] == -sums[1]);
    CHECK(block.neg_sum[2] == -sums[0] - sums[1]);
    CHECK(block.scaled_sum == block.scale * static_cast<float>(sums[0] + sums[1]));
  }
}

// The a8 product equals, up to float rounding, the product of dequantised weights and activations.
void check_a8(const Kernels& set, TensorType type, Random& random) {
  const int64_t k = 512;
  const int64_t n = 21;
  const int64_t rows = 5;
  const std::vector<uint8_t> w = testing::random_rows(type, n, k, random);
  const size_t w_row = row_bytes(type, k);
  testing::AlignedBytes packed(packed_bytes(type, n, k));
  pack_rows(type, w.data(), w_row, 0, k, 0, n, packed.data());
  const std::vector<float> x = testing::random_floats(rows * k, random);
  std::vector<ActivationBlock> acts(static_cast<size_t>(rows * k / 32));
  for (int64_t r = 0; r < rows; ++r) {
    set.quantize_row(x.data() + r * k, k, acts.data() + r * k / 32);
  }
  std::vector<float> out(static_cast<size_t>(rows * n));
  set.matmul_a8(type, packed.data(), n, k, acts.data(), rows, {out.data(), nullptr, n, nullptr, 0},
                0, n);
  std::vector<float> weights(static_cast<size_t>(k));
  for (int64_t i = 0; i < n; ++i) {
    dequantize_row(type, w.data() + static_cast<size_t>(i) * w_row, 0, k, weights.data());
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0.0;
      double magnitude = 0.0;
      for (int64_t c = 0; c < k; ++c) {
        const ActivationBlock& block = acts[static_cast<size_t>((r * k + c) / 32)];
        const double act = static_cast<double>(block.scale) * block.q[c % 32];
        const double term = act * static_cast<double>(weights[static_cast<size_t>(c)]);
        sum += term;
        magnitude += std::fabs(term);
      }
      // Minima make terms that cancel inside the dequantised weight: allow for their size too.
      if (!CHECK(close(static_cast<double>(out[static_cast<size_t>(r * n + i)]), sum,
                       1e-5 * magnitude + 1e-4))) {
        std::fprintf(stderr, "  %s on %s\n", traits_of(type).name.data(), isa_name(set.isa));
      }
    }
  }
}

// Packing a slice of the columns, and packing row ranges one by one, equals packing the parts' sum.
void check_cuts(const Kernels& set, TensorType type, Random& random) {
  const int64_t k = 768;
  const int64_t n = 40;
  const std::vector<uint8_t> w = testing::random_rows(type, n, k, random);
  const size_t w_row = row_bytes(type, k);
  testing::AlignedBytes whole(packed_bytes(type, n, k));
  testing::AlignedBytes pieces(whole.size());
  pack_rows(type, w.data(), w_row, 0, k, 0, n, whole.data());
  for (const int64_t row0 : {32, 0, 16}) {
    const int64_t count = std::min<int64_t>(16, n - row0);
    pack_rows(type, w.data() + static_cast<size_t>(row0) * w_row, w_row, 0, k, row0, count,
              pieces.data());
  }
  CHECK(std::memcmp(whole.data(), pieces.data(), whole.size()) == 0);
  // Columns 96..351 alone: the weights that dequantize_row names.
  const int64_t k0 = 96;
  const int64_t part = 256;
  testing::AlignedBytes slice(packed_bytes(type, n, part));
  pack_rows(type, w.data(), w_row, k0, part, 0, n, slice.data());
  std::vector<float> x(static_cast<size_t>(part), 0.0f);
  std::vector<ActivationBlock> act(static_cast<size_t>(part / 32));
  std::vector<float> row(static_cast<size_t>(part));
  std::vector<float> out(static_cast<size_t>(n));
  for (const int64_t column : {0, 15, 16, 31, 100, 255}) {
    std::fill(x.begin(), x.end(), 0.0f);
    x[static_cast<size_t>(column)] = 127.0f;  // scale 1: the output is 127 times the weight
    set.quantize_row(x.data(), part, act.data());
    set.matmul_a8(type, slice.data(), n, part, act.data(), 1, {out.data(), nullptr, n, nullptr, 0},
                  0, n);
    for (const int64_t i : {0, 17, 39}) {
      dequantize_row(type, w.data() + static_cast<size_t>(i) * w_row, k0, part, row.data());
      const double weight = static_cast<double>(row[static_cast<size_t>(column)]);
      CHECK(close(static_cast<double>(out[static_cast<size_t>(i)]), 127.0 * weight,
                  1e-3 + 1e-5 * std::fabs(weight)));
    }
  }
}

// Every row of a batch has the bits it has alone, for products and attention.
void check_rows_alone(const Kernels& set, Random& random) {
  const int64_t k = 320;
  const int64_t n = 37;
  const int64_t rows = 23;
  const std::vector<float> x = testing::random_floats(rows * k, random);
  const std::vector<float> bias = testing::random_floats(n, random);
  std::vector<float> batch(static_cast<size_t>(rows * n));
  std::vector<float> alone(batch.size());
  std::vector<float> scratch(static_cast<size_t>(k));
  const TensorType q8 = TensorType::kQ8_0;
  const std::vector<uint8_t> w = testing::random_rows(q8, n, k, random);
  matmul_exact(set, q8, w.data(), row_bytes(q8, k), 0, k, x.data(), k, rows, bias.data(),
               batch.data(), n, 0, n, scratch.data());
  for (int64_t r = 0; r < rows; ++r) {
    // Columns in two calls, as two threads would.
    for (const int64_t n0 : {0, 16}) {
      matmul_exact(set, q8, w.data(), row_bytes(q8, k), 0, k, x.data() + r * k, k, 1, bias.data(),
                   alone.data() + r * n, n, n0, n0 == 0 ? 16 : n, scratch.data());
    }
  }
  CHECK(testing::same_bits(batch, alone));
}

struct Cache {
  std::vector<std::vector<uint8_t>> blocks;
  std::vector<const void*> pointers;
};

Cache make_cache(const Kernels& set, const std::vector<float>& values, int64_t dim, KvType type,
                 bool keys) {
  Cache cache;
  const int64_t per_block = kKvBlockTokens * dim;
  for (size_t at = 0; at < values.size(); at += static_cast<size_t>(per_block)) {
    cache.blocks.emplace_back(static_cast<size_t>(per_block) * kv_element_bytes(type));
    testing::fill_block(set, values.data() + at, dim, type, keys, cache.blocks.back().data());
  }
  for (const auto& block : cache.blocks) cache.pointers.push_back(block.data());
  return cache;
}

void check_attention(const Kernels& set, KvType type, Random& random) {
  const int64_t dim = 40;
  const int64_t heads = 3;
  const int64_t rows = 9;
  const int64_t pos0 = 505;
  std::vector<float> k = testing::random_floats(3 * kKvBlockTokens * dim, random);
  std::vector<float> v = testing::random_floats(3 * kKvBlockTokens * dim, random);
  for (float& value : k) value = f16_to_f32(f32_to_f16(value));
  for (float& value : v) value = f16_to_f32(f32_to_f16(value));
  const Cache keys = make_cache(set, k, dim, type, true);
  const Cache values = make_cache(set, v, dim, type, false);
  const int64_t stride = heads * dim;
  const std::vector<float> q = testing::random_floats(rows * stride, random);
  std::vector<float> out(q.size());
  std::vector<float> scratch(static_cast<size_t>(attention_scratch_floats(heads, dim)));
  const float scale = 0.4f;
  AttentionArgs args{q.data(),
                     stride,
                     rows,
                     pos0,
                     heads,
                     dim,
                     scale,
                     type,
                     keys.pointers.data(),
                     values.pointers.data(),
                     out.data(),
                     stride,
                     scratch.data()};
  set.attention(args);
  for (int64_t i = 0; i < rows * heads; ++i) {
    const float* query = q.data() + i * dim;
    const int64_t visible = pos0 + i / heads + 1;
    std::vector<double> weights(static_cast<size_t>(visible));
    double total = 0.0;
    for (int64_t j = 0; j < visible; ++j) {
      double dot = 0.0;
      for (int64_t d = 0; d < dim; ++d) {
        dot += static_cast<double>(query[d]) *
               static_cast<double>(k[static_cast<size_t>(j * dim + d)]);
      }
      weights[static_cast<size_t>(j)] = std::exp(dot * static_cast<double>(scale));
      total += weights[static_cast<size_t>(j)];
    }
    for (int64_t d = 0; d < dim; d += 13) {
      double expected = 0.0;
      for (int64_t j = 0; j < visible; ++j) {
        expected += weights[static_cast<size_t>(j)] / total *
                    static_cast<double>(v[static_cast<size_t>(j * dim + d)]);
      }
      CHECK(close(static_cast<double>(out[static_cast<size_t>(i * dim + d)]), expected, 1e-5));
    }
  }
  std::vector<float> alone(out.size());
  for (int64_t r = 0; r < rows; ++r) {
    args.q = q.data() + r * stride;
    args.out = alone.data() + r * stride;
    args.pos0 = pos0 + r;
    args.row_count = 1;
    set.attention(args);
  }
  CHECK(testing::same_bits(out, alone));
}

void check_between(const Kernels& set, Random& random) {
  const int64_t n = 72;
  const std::vector<float> x = testing::random_floats(n, random);
  const std::vector<float> w = testing::random_floats(n, random);
  std::vector<float> y(static_cast<size_t>(n));
  double squares = 0.0;
  for (const float value : x) squares += static_cast<double>(value) * static_cast<double>(value);
  set.rms_norm(x.data(), w.data(), 1e-5f, n, y.data());
  const double inverse = 1.0 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
  const auto at = [](const std::vector<float>& values, int64_t i) {
    return static_cast<double>(values[static_cast<size_t>(i)]);
  };
  for (int64_t i = 0; i < n; i += 7) CHECK(close(at(y, i), at(x, i) * inverse * at(w, i), 1e-5));
  set.swiglu(x.data(), w.data(), n, y.data());
  for (int64_t i = 0; i < n; i += 7) {
    CHECK(close(at(y, i), at(x, i) / (1.0 + std::exp(-at(x, i))) * at(w, i), 1e-5));
  }
  float max = 0.0f;
  float sum = 0.0f;
  set.max_sum_exp(x.data(), n, &max, &sum);
  double expected = 0.0;
  for (const float value : x)
    expected += std::exp(static_cast<double>(value) - static_cast<double>(max));
  CHECK(max == *std::max_element(x.begin(), x.end()));
  CHECK(close(static_cast<double>(sum), expected, 1e-4));
}

// Both styles rotate the named pairs by the angle and leave the rest alone.
void check_rope(const Kernels& set, Random& random) {
  const int64_t dim = 24;
  const int64_t n_rot = 20;
  for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalfSplit}) {
    const std::vector<float> x = testing::random_floats(dim, random);
    std::vector<float> y = x;
    std::vector<float> cos(10);
    std::vector<float> sin(10);
    for (size_t i = 0; i < 10; ++i) {
      cos[i] = std::cos(0.1f * static_cast<float>(i));
      sin[i] = std::sin(0.1f * static_cast<float>(i));
    }
    set.rope(y.data(), 1, dim, n_rot, cos.data(), sin.data(), style);
    for (size_t i = 0; i < 10; ++i) {
      const size_t a = style == RopeStyle::kHalfSplit ? i : 2 * i;
      const size_t b = style == RopeStyle::kHalfSplit ? i + 10 : 2 * i + 1;
      CHECK(std::fabs(y[a] - (x[a] * cos[i] - x[b] * sin[i])) <= 1e-6f);
      CHECK(std::fabs(y[b] - (x[a] * sin[i] + x[b] * cos[i])) <= 1e-6f);
    }
    for (size_t i = 20; i < 24; ++i) CHECK(y[i] == x[i]);
  }
}

}  // namespace

int main() {
  check_exp();
  check_double_functions();
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kNeon}) {
    if (!isa_available(isa)) continue;
    const Kernels& set = kernels_for(isa);
    Random random(11);
    check_quantized_row(set, random);
    for (const TensorType type : testing::kAllTypes) {
      if (!is_block_type(type)) continue;
      check_a8(set, type, random);
      check_cuts(set, type, random);
    }
    check_rows_alone(set, random);
    check_attention(set, KvType::kF32, random);
    check_attention(set, KvType::kF16, random);
    check_between(set, random);
    check_rope(set, random);
  }
  return testing::finish("kernels_reference_test");
}

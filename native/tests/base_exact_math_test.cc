// exact_math against the C library's long double functions, and a hash of many results: the same on
// every CPU, or the bits are not portable.
#include "base/exact_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "base/sha256.h"
#include "check.h"

using namespace coxswain;

namespace {

// splitmix64: a fixed stream of test points.
struct Points {
  uint64_t state;
  uint64_t next() {
    state += 0x9e3779b97f4a7c15u;
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double between(double low, double high) {
    return low + (high - low) * (static_cast<double>(next() >> 11) * 0x1p-53);
  }
};

double relative_error(double value, long double truth) {
  if (truth == 0) return std::fabs(value);
  return static_cast<double>(fabsl((static_cast<long double>(value) - truth) / truth));
}

void logarithms() {
  Points points{1};
  double worst = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double x = i % 2 == 0 ? points.between(0.5, 2) : std::exp(points.between(-700, 700));
    worst = std::fmax(worst, relative_error(exact_log(x), logl(static_cast<long double>(x))));
  }
  CHECK(worst < 1e-15);
  CHECK(exact_log(1) == 0);
}

void exponentials() {
  Points points{2};
  double worst = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double x = i % 2 == 0 ? points.between(-1, 1) : points.between(-700, 700);
    worst =
        std::fmax(worst, relative_error(exact_exp_double(x), expl(static_cast<long double>(x))));
  }
  CHECK(worst < 1e-15);
  CHECK(exact_exp_double(0) == 1);
  CHECK(exact_exp_double(-800) == 0);
  CHECK(std::isinf(exact_exp_double(800)));
  CHECK(std::fabs(exact_exp_double(-745) - std::exp(-745.0)) <= 0x1p-1074);
}

void powers() {
  Points points{3};
  double worst = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double base = i % 2 == 0 ? points.between(1e-3, 10) : points.between(1e3, 1e8);
    const double exponent = points.between(-20, 20);
    worst = std::fmax(
        worst, relative_error(exact_pow(base, exponent), powl(static_cast<long double>(base),
                                                              static_cast<long double>(exponent))));
  }
  CHECK(worst < 1e-15);
  CHECK(exact_pow(10000, 0) == 1);
  CHECK(exact_pow(1, 123.5) == 1);
  CHECK(exact_pow(10, -1e6) == 0);
  CHECK(std::isinf(exact_pow(10, 1e6)));
}

void circles() {
  Points points{4};
  double worst = 0;
  for (int i = 0; i < 200'000; ++i) {
    const double limit = i % 3 == 0 ? 1 : i % 3 == 1 ? 1e4 : 2e9;
    const double angle = points.between(-limit, limit);
    double sine = 0;
    double cosine = 0;
    exact_sincos(angle, &sine, &cosine);
    const long double truth = static_cast<long double>(angle);
    worst =
        std::fmax(worst, static_cast<double>(fabsl(static_cast<long double>(sine) - sinl(truth))));
    worst = std::fmax(worst,
                      static_cast<double>(fabsl(static_cast<long double>(cosine) - cosl(truth))));
  }
  CHECK(worst < 5e-16);
  double sine = 1;
  double cosine = 0;
  exact_sincos(0, &sine, &cosine);
  CHECK(sine == 0 && cosine == 1);
}

// The expected digest was computed on x86-64 with and without FMA and under qemu's arm64: a change
// of a single bit of a single result changes it.
void same_bits_everywhere() {
  Points points{5};
  Sha256 hash;
  const auto feed = [&](double value) {
    const uint64_t bits = std::bit_cast<uint64_t>(value);
    hash.update(std::as_bytes(std::span(&bits, 1)));
  };
  for (int i = 0; i < 5000; ++i) {
    feed(exact_log(points.between(1e-5, 1e5)));
    feed(exact_exp_double(points.between(-30, 30)));
    const double base = points.between(1e-3, 1e6);
    feed(exact_pow(base, points.between(-2, 2)));
    double sine = 0;
    double cosine = 0;
    exact_sincos(points.between(-1e6, 1e6), &sine, &cosine);
    feed(sine);
    feed(cosine);
  }
  const std::string digest = hex(hash.finish());
  if (!CHECK(digest == "4838dae6bb551375061030539f45a7e16db4c4d4549fa1d4a16e6f955e88ff0e")) {
    std::fprintf(stderr, "digest of the results: %s\n", digest.c_str());
  }
}

}  // namespace

int main() {
  logarithms();
  exponentials();
  powers();
  circles();
  same_bits_everywhere();
  return coxswain::testing::finish("base_exact_math_test");
}

// Series are summed by Horner's rule from the smallest term; constants are split so that products
// with small integers stay exact.
#include "base/exact_math.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/error.h"

namespace coxswain {
namespace {

// ln 2 = kLn2High + kLn2Low; the high part ends in 17 zero bits, so k * kLn2High is exact.
constexpr double kLn2High = 0x1.62e42fefa0000p-1;
constexpr double kLn2Low = 0x1.cf79abc9e3b3ap-40;
constexpr double kInverseLn2 = 0x1.71547652b82fep+0;
// pi/2 in three parts of 53 bits.
constexpr double kHalfPi1 = 0x1.921fb54442d18p+0;
constexpr double kHalfPi2 = 0x1.1a62633145c07p-54;
constexpr double kHalfPi3 = -0x1.f1976b7ed8fbcp-110;
constexpr double kInverseHalfPi = 0x1.45f306dc9c883p-1;

template <size_t N>
double horner(double x, const std::array<double, N>& coefficients) {
  double sum = coefficients[N - 1];
  for (size_t i = N - 1; i-- > 0;) sum = std::fma(sum, x, coefficients[i]);
  return sum;
}

// 2^k for -1022 <= k <= 1023.
double power_of_two(int64_t k) {
  return std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52);
}

// ln x as a sum of two doubles, so that pow does not lose the digits that its product magnifies.
struct TwoDoubles {
  double high, low;
};

TwoDoubles two_part_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);  // exact: m in [1/2, 1)
  if (m < 0x1.6a09e667f3bcdp-1) {
    m *= 2;
    --exponent;
  }
  // ln m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.1716; s as quotient plus remainder.
  const double f = m - 1;  // exact
  const double d = m + 1;
  const double d_low = (1 - (d - m)) + (m - (d - (d - m)));  // m + 1 = d + d_low exactly
  const double s = f / d;
  const double s_low = std::fma(-s, d_low, std::fma(-s, d, f)) / d;
  static constexpr std::array<double, 12> kAtanh = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,
                                                    1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17,
                                                    1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25};
  const double z = s * s;
  const double tail = s * z * horner(z, kAtanh) + s_low;
  const double k = static_cast<double>(exponent);
  const double head = k * kLn2High;  // exact
  const double sum = head + 2 * s;
  // |head| >= |2s| or head == 0, so this is the exact rounding error of the sum.
  const double sum_error = (head - sum) + 2 * s;
  const double rest = sum_error + std::fma(k, kLn2Low, 2 * tail);
  const double high = sum + rest;
  return {high, (sum - high) + rest};
}

// e^(x + x_low).
double exp_of_two(double x, double x_low) {
  if (x > 709.8) return std::numeric_limits<double>::infinity();
  if (x < -745.2) return 0;
  const double k = std::nearbyint(x * kInverseLn2);
  const double reduced = std::fma(-k, kLn2High, x);  // exact
  const double r = reduced + std::fma(-k, kLn2Low, x_low);
  static constexpr std::array<double, 14> kExp = {1.0,
                                                  1.0,
                                                  1.0 / 2,
                                                  1.0 / 6,
                                                  1.0 / 24,
                                                  1.0 / 120,
                                                  1.0 / 720,
                                                  1.0 / 5040,
                                                  1.0 / 40320,
                                                  1.0 / 362880,
                                                  1.0 / 3628800,
                                                  1.0 / 39916800,
                                                  1.0 / 479001600,
                                                  1.0 / 6227020800.0};
  const double value = horner(r, kExp);
  const int64_t whole = static_cast<int64_t>(k);
  const int64_t half = whole / 2;  // two factors: 2^k itself may lie outside the normal range
  return value * power_of_two(half) * power_of_two(whole - half);
}

}  // namespace

double exact_log(double x) {
  COX_CHECK(x > 0 && x <= std::numeric_limits<double>::max(), "a logarithm's argument is positive");
  return two_part_log(x).high;
}

double exact_exp_double(double x) { return exp_of_two(x, 0); }

double exact_pow(double base, double exponent) {
  COX_CHECK(base > 0 && base <= std::numeric_limits<double>::max(), "a power's base is positive");
  const TwoDoubles log = two_part_log(base);
  const double product = exponent * log.high;
  if (!(product > -1000 && product < 1000)) return product > 0 ? exp_of_two(1000, 0) : 0;
  const double product_low = std::fma(exponent, log.high, -product) + exponent * log.low;
  return exp_of_two(product, product_low);
}

void exact_sincos(double angle, double* sine, double* cosine) {
  COX_CHECK(angle > -0x1p31 && angle < 0x1p31, "an angle stays below 2^31");
  const double k = std::nearbyint(angle * kInverseHalfPi);
  double r = std::fma(-k, kHalfPi1, angle);
  r = std::fma(-k, kHalfPi2, r);
  r = std::fma(-k, kHalfPi3, r);
  static constexpr std::array<double, 8> kSine = {-1.0 / 6,
                                                  1.0 / 120,
                                                  -1.0 / 5040,
                                                  1.0 / 362880,
                                                  -1.0 / 39916800,
                                                  1.0 / 6227020800.0,
                                                  -1.0 / 1307674368000.0,
                                                  1.0 / 355687428096000.0};
  static constexpr std::array<double, 9> kCosine = {-1.0 / 2,
                                                    1.0 / 24,
                                                    -1.0 / 720,
                                                    1.0 / 40320,
                                                    -1.0 / 3628800,
                                                    1.0 / 479001600,
                                                    -1.0 / 87178291200.0,
                                                    1.0 / 20922789888000.0,
                                                    -1.0 / 6402373705728000.0};
  const double z = r * r;
  const double s = std::fma(r * z, horner(z, kSine), r);
  const double c = std::fma(z, horner(z, kCosine), 1.0);
  switch (static_cast<int64_t>(k) & 3) {
    case 0:
      *sine = s;
      *cosine = c;
      return;
    case 1:
      *sine = c;
      *cosine = -s;
      return;
    case 2:
      *sine = -s;
      *cosine = -c;
      return;
    default:
      *sine = -c;
      *cosine = s;
  }
}

}  // namespace coxswain

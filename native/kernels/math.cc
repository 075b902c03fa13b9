// The float exp that every instruction set repeats lane by lane, and the double functions of base
// under the names of the kernel interface. Within 1 ulp; IEEE operations alone, in one written
// order.
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/exact_math.h"
#include "kernels/exp_constants.h"
#include "kernels/kernels.h"

namespace coxswain::kernels {
float exact_exp(float x) {
  x = kExpMax < x ? kExpMax : x;  // both comparisons let a NaN through
  x = kExpMin > x ? kExpMin : x;
  const float shifted = std::fma(x, kLog2E, kRoundShift);
  const float n = shifted - kRoundShift;
  float r = std::fma(n, kMinusLn2Hi, x);
  r = std::fma(n, kMinusLn2Lo, r);
  float p = kExpTerms[0];
  for (int i = 1; i < kExpTermCount; ++i) p = std::fma(p, r, kExpTerms[i]);
  const int32_t whole = std::bit_cast<int32_t>(std::bit_cast<uint32_t>(shifted) - kRoundShiftBits);
  const int32_t first = whole >> 1;
  const uint32_t second = static_cast<uint32_t>(whole) - static_cast<uint32_t>(first);
  p = p * std::bit_cast<float>((static_cast<uint32_t>(first) + 127u) << 23);
  return p * std::bit_cast<float>((second + 127u) << 23);
}

double exact_log(double x) { return coxswain::exact_log(x); }

double exact_pow(double base, double exponent) { return coxswain::exact_pow(base, exponent); }

void exact_sincos(double angle, double* sine, double* cosine) {
  coxswain::exact_sincos(angle, sine, cosine);
}

}  // namespace coxswain::kernels

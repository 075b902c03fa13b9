// The float exp of ../math.cc on 16 lanes, operation by operation the same.
#pragma once
#include "kernels/exp_constants.h"
#include "kernels/vector/unroll.h"

namespace coxswain::kernels::vector {

template <class L>
COX_INLINE typename L::F exp_lanes(typename L::F x) {
  using F = typename L::F;
  x = L::min(L::set1(kExpMax), x);
  x = L::max(L::set1(kExpMin), x);
  const F shifted = L::fma(x, L::set1(kLog2E), L::set1(kRoundShift));
  const F n = L::sub(shifted, L::set1(kRoundShift));
  F r = L::fma(n, L::set1(kMinusLn2Hi), x);
  r = L::fma(n, L::set1(kMinusLn2Lo), r);
  F p = L::set1(kExpTerms[0]);
  unroll<kExpTermCount - 1>([&](auto i)
                                COX_INLINE_LAMBDA { p = L::fma(p, r, L::set1(kExpTerms[i + 1])); });
  return L::scale_by_power(p, shifted);
}

}  // namespace coxswain::kernels::vector

// The NEON set: the templates of ../vector over four 128-bit registers.
#if defined(__aarch64__)
#include "kernels/neon/table.h"

#if defined(__linux__)
#include <sys/auxv.h>
#endif

#include "kernels/neon/lanes.h"
#include "kernels/vector/attention.h"
#include "kernels/vector/elementwise.h"
#include "kernels/vector/float_matmul.h"

namespace coxswain::kernels::neon {
namespace {

bool has_dot_product() {
#if defined(__linux__)
  constexpr unsigned long kDotProductBit = 1ul << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & kDotProductBit) != 0;
#elif defined(__APPLE__)
  return true;  // every 64-bit Apple computer has it
#else
  return false;
#endif
}

constexpr Kernels set_with(decltype(Kernels::matmul_a8) matmul_a8) {
  return {Isa::kNeon,
          vector::quantize_row<Lanes>,
          matmul_a8,
          vector::matmul_float<Lanes>,
          vector::rms_norm<Lanes>,
          vector::swiglu<Lanes>,
          vector::add<Lanes>,
          vector::rope<Lanes>,
          vector::store_value<Lanes>,
          vector::store_key<Lanes>,
          vector::attention<Lanes>,
          vector::max_sum_exp<Lanes>};
}

}  // namespace

const Kernels& table() {
  static constexpr Kernels kPlain = set_with(matmul_a8_plain);
  static constexpr Kernels kDotProduct = set_with(matmul_a8_dotprod);
  static const bool dot_product = has_dot_product();
  return dot_product ? kDotProduct : kPlain;
}

}  // namespace coxswain::kernels::neon
#endif

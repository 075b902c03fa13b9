// The AVX2 set: the templates of ../vector over pairs of 256-bit registers.
#if defined(__x86_64__)
#include "kernels/avx2/table.h"

#include "kernels/avx2/lanes.h"
#include "kernels/vector/attention.h"
#include "kernels/vector/elementwise.h"
#include "kernels/vector/float_matmul.h"

namespace coxswain::kernels::avx2 {

const Kernels& table() {
  static constexpr Kernels kTable{Isa::kAvx2,
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
  return kTable;
}

}  // namespace coxswain::kernels::avx2
#endif

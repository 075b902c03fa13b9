// Which instruction set runs: the CPU's best, lowered by COX_ISA. Also the sizes that every set
// shares.
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "kernels/attention_shape.h"
#include "kernels/avx2/table.h"
#include "kernels/avx512/table.h"
#include "kernels/kernels.h"
#include "kernels/layout.h"
#include "kernels/neon/table.h"
#include "kernels/scalar/scalar.h"

namespace coxswain::kernels {

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kNeon:
      return "neon";
  }
  return "?";
}

#if defined(__x86_64__)
bool isa_available(Isa isa) {
  __builtin_cpu_init();
  // The compiler's test also asks the system whether it saves the wide registers.
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vnni");
    case Isa::kNeon:
      return false;
  }
  return false;
}
#elif defined(__aarch64__)
bool isa_available(Isa isa) { return isa == Isa::kScalar || isa == Isa::kNeon; }
#else
bool isa_available(Isa isa) { return isa == Isa::kScalar; }
#endif

Isa choose_isa() {
  constexpr Isa kBestFirst[] = {Isa::kAvx512, Isa::kAvx2, Isa::kNeon, Isa::kScalar};
  const char* wanted = std::getenv("COX_ISA");
  for (const Isa isa : kBestFirst) {
    if (wanted != nullptr && std::string_view(wanted) != isa_name(isa)) continue;
    if (isa_available(isa)) return isa;
  }
  throw EngineError("ISA_UNAVAILABLE",
                    std::string("COX_ISA=") + (wanted != nullptr ? wanted : "") +
                        " names no instruction set of this CPU and build; unset it or use scalar");
}

const Kernels& kernels_for(Isa isa) {
  COX_CHECK(isa_available(isa), "kernels are asked for only after isa_available");
#if defined(__x86_64__)
  if (isa == Isa::kAvx512) return avx512::table();
  if (isa == Isa::kAvx2) return avx2::table();
#elif defined(__aarch64__)
  if (isa == Isa::kNeon) return neon::table();
#endif
  return scalar::table();
}

size_t quantized_row_bytes(int64_t k) {
  return static_cast<size_t>(k / kActivationBlock) * sizeof(ActivationBlock);
}

int64_t attention_scratch_floats(int64_t heads, int64_t head_dim) {
  // Enough for fewer heads too: a tile of fewer heads has more rows, and up to 16 queries.
  return attention_floats(heads < 16 ? 16 : heads, head_dim);
}

void matmul_exact(const Kernels& kernels, TensorType type, const void* w, size_t w_row_bytes,
                  int64_t k0, int64_t k, const float* x, int64_t ldx, int64_t row_count,
                  const float* bias, float* out, int64_t ldo, int64_t n0, int64_t n1,
                  float* scratch) {
  const uint8_t* rows = static_cast<const uint8_t*>(w);
  for (int64_t n = n0; n < n1; ++n) {
    dequantize_row(type, rows + n * static_cast<int64_t>(w_row_bytes), k0, k, scratch);
    // One dequantised row at a time, given as row 0 of a matrix whose output column is n.
    kernels.matmul_float(TensorType::kF32, scratch, 0, k, x, ldx, row_count,
                         bias != nullptr ? bias + n : nullptr, out + n, ldo, 0, 1);
  }
}

}  // namespace coxswain::kernels

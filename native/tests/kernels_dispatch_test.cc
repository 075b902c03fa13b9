// The choice of the instruction set: the best available one, lowered by COX_ISA, refused by name.
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "kernels/kernels.h"
#include "tests/check.h"

using namespace coxswain;
using namespace coxswain::kernels;

namespace {

bool refused(const char* value) {
  ::setenv("COX_ISA", value, 1);
  try {
    choose_isa();
    return false;
  } catch (const EngineError& error) {
    return error.code() == "ISA_UNAVAILABLE" &&
           std::string(error.what()).find(value) != std::string::npos;
  }
}

}  // namespace

int main() {
  CHECK(isa_available(Isa::kScalar));
  CHECK(!isa_available(Isa::kNeon) || !isa_available(Isa::kAvx2));
  CHECK(!isa_available(Isa::kAvx512) || isa_available(Isa::kAvx2));
  ::unsetenv("COX_ISA");
  const Isa best = choose_isa();
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kNeon}) {
    if (!isa_available(isa)) {
      CHECK(refused(isa_name(isa)));
      continue;
    }
    CHECK(kernels_for(isa).isa == isa);
    ::setenv("COX_ISA", isa_name(isa), 1);
    CHECK(choose_isa() == isa);
    // The best set is never scalar where a vector set runs, and AVX-512 goes before AVX2.
    CHECK(best != Isa::kScalar || isa == Isa::kScalar);
    CHECK(isa != Isa::kAvx512 || best == Isa::kAvx512);
  }
  CHECK(refused("sse9"));
  CHECK(refused("AVX2"));
  return testing::finish("kernels_dispatch_test");
}

// The conformance suite over shm links between fabrics of one process.
#include "tests/comm_fabrics.h"

using namespace coxswain::comm;
using namespace coxswain::comm::testing;

int main() {
  run_conformance("shm", [](int count) { return planes_over(TransportKind::kShm, count); }, 5000);
  return coxswain::testing::finish("comm_shm_test");
}

// The conformance suite over tcp links between fabrics of one process.
#include "tests/comm_fabrics.h"

using namespace coxswain::comm;
using namespace coxswain::comm::testing;

int main() {
  run_conformance("tcp", [](int count) { return planes_over(TransportKind::kTcp, count); }, 5000);
  return coxswain::testing::finish("comm_tcp_test");
}

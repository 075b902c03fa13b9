// Verdicts of many outputs over the small rings of shared memory: they may not fill a link while
// the rank at its other end waits for its next step.
#include "check.h"
#include "engine_fixture.h"
#include "tests/comm_fabrics.h"

using namespace coxswain;
using namespace coxswain::testing;

namespace {

constexpr int kStages = 7;
constexpr uint32_t kOutputs = 2048;

// As many steps as a coordinator keeps in flight, each with verdicts of 16 KiB for every rank, and
// none after them.
void verdicts_of_all_steps_in_flight_pass() {
  const ModelFile file(TinyModel{.layers = kStages});
  weights::Topology topology;
  topology.split = {1};
  topology.pp = kStages;
  topology.kv_type = 0;
  topology.exact = true;
  TestCluster cluster(file.path(), topology, 1, kOutputs);
  comm::testing::Planes planes = comm::testing::planes_over(comm::TransportKind::kShm, kStages);
  std::vector<std::unique_ptr<comm::DataPlane>> taken;
  for (size_t rank = 0; rank < kStages; ++rank) taken.push_back(std::move(planes[rank]));
  cluster.begin_epoch(3, std::move(taken));

  for (uint64_t step = 1; step <= kStages + 1; ++step) {
    RecordBuilder record(3, step);
    if (step == 1) record.create(0, {0}).sampler(0, 1000);
    record.run(0, static_cast<uint32_t>(step) - 1, {static_cast<uint32_t>(step)});
    for (uint32_t i = 0; i < kOutputs; ++i) record.output(0, 1);
    cluster.submit(record);
  }
  for (uint64_t step = 1; step <= kStages + 1; ++step) {
    const engine::EngineEvent event = cluster.wait_leader(step);
    if (!CHECK(event.kind == engine::EngineEvent::Kind::kResult)) {
      std::fprintf(stderr, "%s\n", event.message.c_str());
      return;
    }
  }
}

}  // namespace

int main() {
  verdicts_of_all_steps_in_flight_pass();
  return finish("engine_verdicts_test");
}

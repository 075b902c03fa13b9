// Step records: everything that is written is read, and nothing malformed is.
#include "engine/step_record.h"

#include "base/error.h"
#include "check.h"
#include "engine_fixture.h"

using namespace coxswain;
using namespace coxswain::engine;
using coxswain::testing::RecordBuilder;

namespace {

RecordBuilder full_record() {
  RecordBuilder record(7, (uint64_t{1} << 33) + 5);
  record.create(1, {4, 5}, {10, 11, 12})
      .append_blocks(1, {6})
      .truncate(1, 2, 1)
      .drop(2)
      .copy(3, 4, 17);
  record.sampler(1, 99, {0, 2});
  record.run(1, 2, {20, 21}).run_from(3, 8, (uint64_t{1} << 33) + 4, 1);
  record.output(1, 1).output(2, 2, 0xffffffff).output(0, 3);
  return record;
}

bool refused(std::span<const std::byte> bytes) {
  try {
    decode_step_record(bytes);
    return false;
  } catch (const EngineError& error) {
    return error.code() == "STEP_INVALID";
  }
}

void reads_every_part() {
  const std::vector<std::byte> bytes = full_record().build();
  const StepRecord record = decode_step_record(bytes);
  CHECK(record.epoch == 7);
  CHECK(record.step == (uint64_t{1} << 33) + 5);
  CHECK(record.slot_ops.size() == 6);
  const auto& create = std::get<CreateSlot>(record.slot_ops[0]);
  CHECK(create.slot == 1 && create.length == 3);
  CHECK((create.blocks == std::vector<uint32_t>{4, 5}));
  CHECK((create.tokens == std::vector<uint32_t>{10, 11, 12}));
  CHECK((std::get<AppendBlocks>(record.slot_ops[1]).blocks == std::vector<uint32_t>{6}));
  const auto& truncate = std::get<TruncateSlot>(record.slot_ops[2]);
  CHECK(truncate.length == 2 && truncate.block_count == 1);
  CHECK(std::get<DropSlot>(record.slot_ops[3]).slot == 2);
  const auto& copy = std::get<CopyBlock>(record.slot_ops[4]);
  CHECK(copy.from == 3 && copy.to == 4 && copy.rows == 17);
  const SamplerParams& params = std::get<SetSampler>(record.slot_ops[5]).params;
  CHECK(params.length_max == 99 && params.repetition == 1.0f && params.top_p == 1.0f);
  CHECK((params.stop_ids == std::vector<uint32_t>{0, 2}));
  CHECK(record.runs.size() == 2);
  CHECK((record.runs[0].tokens == std::vector<uint32_t>{20, 21}) && record.runs[0].pos0 == 2);
  CHECK(record.runs[1].from_output && record.runs[1].from_step == (uint64_t{1} << 33) + 4);
  CHECK(record.runs[1].from_index == 1);
  CHECK(record.outputs.size() == 3 && record.outputs[1].argument == 0xffffffff);
}

void refuses_every_truncation() {
  const std::vector<std::byte> bytes = full_record().build();
  for (size_t length = 0; length < bytes.size(); ++length) {
    CHECK(refused(std::span(bytes).first(length)));
  }
  std::vector<std::byte> longer = bytes;
  longer.resize(longer.size() + 4);
  CHECK(refused(longer));
}

// Any word replaced by any awkward value is read or refused: no crash, no huge allocation.
void survives_every_changed_word() {
  const std::vector<std::byte> bytes = full_record().build();
  size_t refusals = 0;
  for (size_t word = 0; word < bytes.size() / 4; ++word) {
    for (const uint32_t value : {0u, 1u, 7u, 0x7fffffffu, 0x80000000u, 0xffffffffu, 0x7fc00000u}) {
      std::vector<std::byte> changed = bytes;
      std::memcpy(changed.data() + word * 4, &value, 4);
      try {
        decode_step_record(changed);
      } catch (const EngineError& error) {
        CHECK(error.code() == "STEP_INVALID");
        ++refusals;
      }
    }
  }
  CHECK(refusals > 50);
}

void refuses_what_cannot_be_meant() {
  CHECK(refused(RecordBuilder(1, 1).run(0, 0, {}).build()));
  CHECK(refused(RecordBuilder(1, 1).run(0, 0, {1}).output(0, 4).build()));
  CHECK(refused(RecordBuilder(1, 1).run(0, 0, {1}).output(0, 0).build()));
}

}  // namespace

int main() {
  reads_every_part();
  refuses_every_truncation();
  survives_every_changed_word();
  refuses_what_cannot_be_meant();
  return coxswain::testing::finish("engine_step_record_test");
}

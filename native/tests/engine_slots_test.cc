// Slots and their blocks: every op keeps the counts, every impossible op is refused with a
// sentence.
#include "engine/slots.h"

#include <string>

#include "base/error.h"
#include "check.h"

using namespace coxswain;
using namespace coxswain::engine;

namespace {

Slots make_slots() { return Slots({.slots = 4, .blocks = 10, .context = 1000}); }

template <typename Action>
bool refused(const std::string& fragment, Action action) {
  try {
    action();
    return false;
  } catch (const EngineError& error) {
    return error.code() == "STEP_INVALID" &&
           std::string(error.what()).find(fragment) != std::string::npos;
  }
}

void counts_the_holders_of_blocks() {
  Slots slots = make_slots();
  slots.apply(CreateSlot{0, 0, {1, 2}, {}});
  slots.apply(CreateSlot{1, 2, {1, 3}, {5, 6}});
  CHECK(slots.holders(1) == 2 && slots.holders(2) == 1 && slots.holders(3) == 1);
  slots.apply(AppendBlocks{1, {4}});
  CHECK(slots.holders(4) == 1);
  slots.apply(TruncateSlot{1, 1, 1});
  CHECK(slots.holders(4) == 0 && slots.holders(3) == 0 && slots.holders(1) == 2);
  slots.apply(DropSlot{0});
  CHECK(slots.holders(1) == 1 && slots.holders(2) == 0);
  slots.clear();
  for (uint32_t block = 0; block < 10; ++block) CHECK(slots.holders(block) == 0);
}

void appends_only_the_next_position() {
  Slots slots = make_slots();
  slots.apply(CreateSlot{0, 2, {1}, {7, 8}});
  CHECK(refused("position 3", [&] { slots.append_token(0, 3, 1); }));
  CHECK(refused("position 1", [&] { slots.append_token(0, 1, 1); }));
  slots.append_token(0, 2, 9);
  CHECK((slots.live_slot(0).tokens == std::vector<uint32_t>{7, 8, 9}));
  for (int64_t position = 3; position < 256; ++position) slots.append_token(0, position, 1);
  CHECK(refused("no block for position 256", [&] { slots.append_token(0, 256, 1); }));
  slots.apply(AppendBlocks{0, {2}});
  slots.append_token(0, 256, 1);
  CHECK(slots.live_slot(0).length() == 257);
}

void refuses_to_write_a_shared_block() {
  Slots slots = make_slots();
  slots.apply(CreateSlot{0, 0, {1}, {}});
  slots.append_token(0, 0, 5);
  slots.apply(CreateSlot{1, 1, {1}, {5}});
  CHECK(refused("block 1", [&] { slots.append_token(0, 1, 6); }));
  CHECK(refused("block 1", [&] { slots.append_token(1, 1, 6); }));
  slots.apply(DropSlot{0});
  slots.append_token(1, 1, 6);
  CHECK(refused("shared by 2", [&] {
    slots.apply(CreateSlot{2, 0, {1}, {}});
    slots.apply(CopyBlock{3, 1, 1});
  }));
}

void refuses_what_does_not_exist() {
  Slots slots = make_slots();
  slots.apply(CreateSlot{0, 0, {1}, {}});
  CHECK(refused("already exists", [&] { slots.apply(CreateSlot{0, 0, {}, {}}); }));
  CHECK(refused("slot 3 does not exist", [&] { slots.apply(DropSlot{3}); }));
  CHECK(refused("slot 4", [&] { slots.apply(DropSlot{4}); }));
  CHECK(refused("slot 9", [&] { slots.apply(CreateSlot{9, 0, {}, {}}); }));
  CHECK(refused("block 10", [&] { slots.apply(AppendBlocks{0, {10}}); }));
  CHECK(refused("do not hold", [&] { slots.apply(CreateSlot{1, 2, {}, {1, 2}}); }));
  CHECK(refused("context", [&] {
    slots.apply(CreateSlot{1, 1001, {2, 3, 4, 5}, std::vector<uint32_t>(1001, 1)});
  }));
  CHECK(refused("5 blocks of slot 1 exceed the 4",
                [&] { slots.apply(CreateSlot{1, 0, {2, 3, 4, 5, 6}, {}}); }));
  CHECK(refused("5 blocks of slot 0 exceed the 4",
                [&] { slots.apply(AppendBlocks{0, {2, 3, 4, 5}}); }));
  CHECK(refused("has 0 tokens", [&] { slots.apply(TruncateSlot{0, 1, 1}); }));
  CHECK(refused("blocks for", [&] { slots.apply(TruncateSlot{0, 0, 2}); }));
  CHECK(refused("257 rows", [&] { slots.apply(CopyBlock{1, 2, 257}); }));
  CHECK(refused("from block 1 to 1", [&] { slots.apply(CopyBlock{1, 1, 2}); }));
}

void tells_states_apart() {
  Slots slots = make_slots();
  slots.apply(CreateSlot{0, 0, {1}, {}});
  const uint64_t empty = slots.digest(0);
  slots.append_token(0, 0, 5);
  const uint64_t one = slots.digest(0);
  slots.apply(AppendBlocks{0, {2}});
  CHECK(empty != one && slots.digest(0) != one);
}

}  // namespace

int main() {
  counts_the_holders_of_blocks();
  appends_only_the_next_position();
  refuses_to_write_a_shared_block();
  refuses_what_does_not_exist();
  tells_states_apart();
  return coxswain::testing::finish("engine_slots_test");
}

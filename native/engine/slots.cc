#include "engine/slots.h"

#include <string>

#include "base/error.h"
#include "engine/digest.h"
#include "kernels/kernels.h"

namespace coxswain::engine {
namespace {

constexpr int64_t kBlock = kernels::kKvBlockTokens;

[[noreturn]] void invalid(const std::string& text) { throw EngineError("STEP_INVALID", text); }

std::string name_of(uint32_t slot) { return "slot " + std::to_string(slot); }

}  // namespace

Slots::Slots(const SlotLimits& limits)
    : limits_(limits),
      blocks_max_(static_cast<size_t>(limits.context / kBlock + 1)),
      slots_(static_cast<size_t>(limits.slots)),
      holders_(static_cast<size_t>(limits.blocks), 0) {
  for (Slot& slot : slots_) slot.blocks.reserve(blocks_max_);
}

void Slots::clear() {
  for (Slot& slot : slots_) {
    slot.live = false;
    slot.tokens.clear();
    slot.blocks.clear();
    slot.sampler.reset();
  }
  std::fill(holders_.begin(), holders_.end(), 0);
}

const Slot& Slots::live_slot(uint32_t slot) const {
  if (slot >= slots_.size())
    invalid(name_of(slot) + " is beyond the engine's " + std::to_string(slots_.size()));
  if (!slots_[slot].live) invalid(name_of(slot) + " does not exist");
  return slots_[slot];
}

Slot& Slots::find(uint32_t slot, const char* what) {
  if (slot >= slots_.size()) {
    invalid(std::string(what) + ": " + name_of(slot) + " is beyond the engine's " +
            std::to_string(slots_.size()));
  }
  if (!slots_[slot].live) invalid(std::string(what) + ": " + name_of(slot) + " does not exist");
  return slots_[slot];
}

void Slots::apply(const SlotOp& op) {
  if (const auto* create_op = std::get_if<CreateSlot>(&op)) {
    create(*create_op);
  } else if (const auto* append_op = std::get_if<AppendBlocks>(&op)) {
    append(*append_op);
  } else if (const auto* truncate_op = std::get_if<TruncateSlot>(&op)) {
    truncate(*truncate_op);
  } else if (const auto* drop = std::get_if<DropSlot>(&op)) {
    Slot& slot = find(drop->slot, "drop");
    release_from(slot, 0);
    slot.live = false;
    slot.tokens.clear();
    slot.sampler.reset();
  } else if (const auto* copy = std::get_if<CopyBlock>(&op)) {
    check_copy(*copy);
  } else if (const auto* sampler = std::get_if<SetSampler>(&op)) {
    find(sampler->slot, "sampler").sampler = sampler->params;
  }
}

void Slots::create(const CreateSlot& op) {
  if (op.slot >= slots_.size()) {
    invalid("create: " + name_of(op.slot) + " is beyond the engine's " +
            std::to_string(slots_.size()));
  }
  Slot& slot = slots_[op.slot];
  if (slot.live) invalid("create: " + name_of(op.slot) + " already exists");
  if (op.length > limits_.context) {
    invalid("create: length " + std::to_string(op.length) + " exceeds the context of " +
            std::to_string(limits_.context));
  }
  if (static_cast<int64_t>(op.blocks.size()) * kBlock < op.length) {
    invalid("create: " + std::to_string(op.blocks.size()) + " blocks do not hold " +
            std::to_string(op.length) + " tokens of " + name_of(op.slot));
  }
  check_table(slot, op.slot, op.blocks.size(), "create");
  slot.live = true;
  slot.tokens.reserve(op.blocks.size() * kBlock);
  slot.tokens.assign(op.tokens.begin(), op.tokens.end());
  for (const uint32_t block : op.blocks) hold(slot, block);
}

void Slots::append(const AppendBlocks& op) {
  Slot& slot = find(op.slot, "append");
  check_table(slot, op.slot, op.blocks.size(), "append");
  for (const uint32_t block : op.blocks) hold(slot, block);
  slot.tokens.reserve(slot.blocks.size() * kBlock);
}

void Slots::truncate(const TruncateSlot& op) {
  Slot& slot = find(op.slot, "truncate");
  if (op.length > slot.length()) {
    invalid("truncate: " + name_of(op.slot) + " has " + std::to_string(slot.length()) +
            " tokens, not " + std::to_string(op.length));
  }
  if (op.block_count > slot.blocks.size() || op.block_count * kBlock < op.length) {
    invalid("truncate: " + std::to_string(op.block_count) + " blocks for " +
            std::to_string(op.length) + " tokens, " + name_of(op.slot) + " has " +
            std::to_string(slot.blocks.size()));
  }
  slot.tokens.resize(op.length);
  release_from(slot, op.block_count);
}

void Slots::check_copy(const CopyBlock& op) const {
  if (op.from >= holders_.size() || op.to >= holders_.size() || op.from == op.to) {
    invalid("copy: from block " + std::to_string(op.from) + " to " + std::to_string(op.to) +
            " of " + std::to_string(holders_.size()));
  }
  if (op.rows > kBlock) invalid("copy: " + std::to_string(op.rows) + " rows in a block of 256");
  if (holders_[op.to] > 1) {
    invalid("copy: block " + std::to_string(op.to) + " is shared by " +
            std::to_string(holders_[op.to]) + " slots");
  }
}

void Slots::append_token(uint32_t index, int64_t position, uint32_t token) {
  Slot& slot = find(index, "run");
  if (position != slot.length()) {
    invalid("run: position " + std::to_string(position) + ", but " + name_of(index) + " has " +
            std::to_string(slot.length()) + " tokens");
  }
  if (position >= limits_.context) {
    invalid("run: position " + std::to_string(position) + " exceeds the context of " +
            std::to_string(limits_.context));
  }
  const size_t block = static_cast<size_t>(position / kBlock);
  if (block >= slot.blocks.size()) {
    invalid("run: " + name_of(index) + " has no block for position " + std::to_string(position));
  }
  if (holders_[slot.blocks[block]] != 1) {
    invalid("run: block " + std::to_string(slot.blocks[block]) + " of " + name_of(index) +
            " is shared; it must be copied before it is written");
  }
  slot.tokens.push_back(token);
}

void Slots::check_table(const Slot& slot, uint32_t index, size_t count, const char* what) const {
  if (count <= blocks_max_ - slot.blocks.size()) return;
  invalid(std::string(what) + ": " + std::to_string(slot.blocks.size() + count) + " blocks of " +
          name_of(index) + " exceed the " + std::to_string(blocks_max_) + " of a whole context");
}

void Slots::hold(Slot& slot, uint32_t block) {
  if (block >= holders_.size()) {
    invalid("block " + std::to_string(block) + " is beyond the engine's " +
            std::to_string(holders_.size()));
  }
  ++holders_[block];
  slot.blocks.push_back(block);
}

void Slots::release_from(Slot& slot, size_t keep) {
  for (size_t i = keep; i < slot.blocks.size(); ++i) --holders_[slot.blocks[i]];
  slot.blocks.resize(keep);
}

uint64_t Slots::digest(uint32_t index) const {
  const Slot& slot = slots_[index];
  Digest digest;
  digest.add(static_cast<uint64_t>(index));
  digest.add(static_cast<uint64_t>(slot.tokens.size()));
  for (const uint32_t block : slot.blocks) digest.add(block);
  return digest.value();
}

}  // namespace coxswain::engine

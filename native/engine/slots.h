// The slots: block table, token history and sampler of every live session, and how many slots hold
// each KV block. Changed by step records alone, so every rank has the same table.
//
// Each change is checked first; a violation is EngineError("STEP_INVALID") and voids the epoch (the
// executor then refuses steps until the next epoch, where all slots are dropped).
// Invariants: blocks * 256 >= length; a block that is written has exactly one holder.
// Owner: the executor thread. Allocates nothing after construction but for `create` and `sampler`.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/step_record.h"

namespace coxswain::engine {

struct Slot {
  bool live = false;
  std::vector<uint32_t> tokens;  // ids of positions 0..length-1
  std::vector<uint32_t> blocks;  // block b holds positions 256b..256b+255
  std::optional<SamplerParams> sampler;
  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
};

struct SlotLimits {
  int64_t slots, blocks, context;
};

class Slots {
 public:
  explicit Slots(const SlotLimits& limits);

  void clear();
  // Everything but the copy of rows, which the caller does once the whole record is known to be
  // good.
  void apply(const SlotOp& op);
  // Appends a row's token at `position`, which must be the slot's next, into a block of its own.
  void append_token(uint32_t slot, int64_t position, uint32_t token);

  const Slot& live_slot(uint32_t slot) const;
  uint32_t holders(uint32_t block) const { return holders_[block]; }
  // A number that differs when any slot's length or blocks differ.
  uint64_t digest(uint32_t slot) const;

 private:
  Slot& find(uint32_t slot, const char* what);
  // Before `count` more blocks are held.
  void check_table(const Slot& slot, uint32_t index, size_t count, const char* what) const;
  void hold(Slot& slot, uint32_t block);
  void release_from(Slot& slot, size_t keep);
  void create(const CreateSlot& op);
  void append(const AppendBlocks& op);
  void truncate(const TruncateSlot& op);
  void check_copy(const CopyBlock& op) const;

  SlotLimits limits_;
  size_t blocks_max_;  // of one slot
  std::vector<Slot> slots_;
  std::vector<uint32_t> holders_;  // per block
};

}  // namespace coxswain::engine

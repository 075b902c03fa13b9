// The memory of the KV cache: a fixed number of blocks of 256 tokens, reserved and touched at load,
// so that no allocation inside a step can fail. The coordinator allots block ids, the same on all
// ranks.
//
// Layout: (layer, block, KV head) -> keys, 16 groups of (head_dim, 16 tokens), then values (256,
// head_dim), of the KV type. Owner: the executor thread.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/thread_pool.h"
#include "kernels/kernels.h"

namespace coxswain::engine {

struct KvGeometry {
  int64_t layers, kv_heads, head_dim, blocks;
  kernels::KvType type;
};

class KvBlocks {
 public:
  // The pool's threads touch the memory. MEMORY_EXHAUSTED when the machine cannot give the bytes.
  KvBlocks(const KvGeometry& geometry, ThreadPool& pool);
  ~KvBlocks();
  KvBlocks(const KvBlocks&) = delete;
  KvBlocks& operator=(const KvBlocks&) = delete;

  uint64_t bytes() const { return bytes_; }
  const KvGeometry& geometry() const { return geometry_; }
  std::byte* keys(int64_t layer, int64_t block, int64_t head) const {
    return base_ +
           static_cast<size_t>((layer * geometry_.blocks + block) * geometry_.kv_heads + head) *
               pair_bytes_;
  }
  std::byte* values(int64_t layer, int64_t block, int64_t head) const {
    return keys(layer, block, head) + pair_bytes_ / 2;
  }
  size_t row_bytes() const { return row_bytes_; }  // one token of one head
  // Copies the first `rows` tokens of a block: every layer and head, keys and values.
  void copy(int64_t from, int64_t to, int64_t rows);

 private:
  KvGeometry geometry_;
  size_t row_bytes_, pair_bytes_;
  uint64_t bytes_;
  std::byte* base_ = nullptr;
};

}  // namespace coxswain::engine

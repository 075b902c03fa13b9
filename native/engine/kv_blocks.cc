#include "engine/kv_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/host_memory.h"

namespace coxswain::engine {

KvBlocks::KvBlocks(const KvGeometry& geometry, ThreadPool& pool) : geometry_(geometry) {
  row_bytes_ = static_cast<size_t>(geometry.head_dim) * kernels::kv_element_bytes(geometry.type);
  pair_bytes_ = 2 * row_bytes_ * static_cast<size_t>(kernels::kKvBlockTokens);
  // The counts are checked one by one, so that the product cannot wrap around.
  bytes_ = pair_bytes_;
  for (const int64_t count : {geometry.kv_heads, geometry.layers, geometry.blocks}) {
    if (count < 0 || __builtin_mul_overflow(bytes_, static_cast<uint64_t>(count), &bytes_)) {
      throw EngineError("MEMORY_EXHAUSTED", "the KV blocks asked for exceed every address space");
    }
  }
  if (bytes_ == 0) return;
  const uint64_t available = host_memory().available;
  if (available > 0 && bytes_ > available) {
    throw EngineError("MEMORY_EXHAUSTED", std::to_string(geometry.blocks) + " KV blocks need " +
                                              std::to_string(bytes_) + " bytes and this host has " +
                                              std::to_string(available) + "; lower --kv-mem");
  }
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw EngineError("MEMORY_EXHAUSTED", "cannot reserve " + std::to_string(bytes_) +
                                              " bytes for " + std::to_string(geometry.blocks) +
                                              " KV blocks; lower --kv-mem");
  }
  base_ = static_cast<std::byte*>(memory);
#ifdef MADV_HUGEPAGE
  madvise(memory, bytes_, MADV_HUGEPAGE);
#endif
  // Touched now: a machine that overcommits refuses here and not in the middle of an answer. The
  // system clears every page, which takes a thread a second for a few GB.
  constexpr uint64_t kPiece = 64ull << 20;
  constexpr uint64_t kPage = 4096;
  pool.run(static_cast<int64_t>((bytes_ + kPiece - 1) / kPiece), [&](int64_t piece, int) {
    const uint64_t begin = static_cast<uint64_t>(piece) * kPiece;
    const uint64_t end = std::min(bytes_, begin + kPiece);
    for (uint64_t at = begin; at < end; at += kPage) base_[at] = std::byte{0};
  });
}

KvBlocks::~KvBlocks() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

void KvBlocks::copy(int64_t from, int64_t to, int64_t rows) {
  const size_t bytes = static_cast<size_t>(rows) * row_bytes_;
  constexpr int64_t kGroup = kernels::kKeyGroup;
  const size_t key_bytes = static_cast<size_t>((rows + kGroup - 1) / kGroup * kGroup) * row_bytes_;
  for (int64_t layer = 0; layer < geometry_.layers; ++layer) {
    for (int64_t head = 0; head < geometry_.kv_heads; ++head) {
      std::memcpy(keys(layer, to, head), keys(layer, from, head), key_bytes);
      std::memcpy(values(layer, to, head), values(layer, from, head), bytes);
    }
  }
}

}  // namespace coxswain::engine

// KV blocks as pages of a file: how a stored prefix leaves the cache and comes back.
//
// A page is one block: chunks (layer, KV head) in ascending order, each the block's keys and values
// of that head as they lie in memory. Every chunk has an XXH64 checksum, so a reader that wants
// some layers and heads only verifies those. The caller keeps the blocks from change: those written
// are full or copies, those read into are in no slot.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/kv_blocks.h"

namespace coxswain::engine {

// Pages of one file. `checksums`: per page and chunk; filled by a write, held against by a read.
struct PageFile {
  std::string path;
  uint64_t offset = 0;               // of the first page
  int64_t layers = 0, kv_heads = 0;  // of the file
  std::vector<uint64_t> checksums;
};

// The part of a file's chunks that this rank takes, and where to.
struct PageBox {
  int64_t file_layer = 0, layer = 0, layers = 0;  // [layer, layer + layers) of this rank
  int64_t file_head = 0, head = 0, heads = 0;
};

uint64_t page_chunk_bytes(const KvGeometry& geometry);

// Asked between chunks: throws to end the transfer.
using Interrupt = std::function<void()>;

// Writes all of this rank's chunks of `blocks` to an existing file and fills file.checksums. Does
// not sync. KV_WRITE_FAILED names the file and the system's reason.
void write_pages(const KvBlocks& kv, PageFile& file, std::span<const uint32_t> blocks,
                 const Interrupt& interrupt);
// Reads the box of one page a block. KV_DAMAGED names the file and page: too short, or a
// checksum that differs; what was read until then stays in the blocks.
void read_pages(KvBlocks& kv, const PageFile& file, const PageBox& box,
                std::span<const uint32_t> blocks, const Interrupt& interrupt);

}  // namespace coxswain::engine

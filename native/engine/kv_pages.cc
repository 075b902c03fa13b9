#include "engine/kv_pages.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/xxh64.h"

namespace coxswain::engine {
namespace {

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags, const char* code)
      : path_(path), code_(code), fd_(open(path.c_str(), flags | O_CLOEXEC)) {
    if (fd_ < 0) fail(std::strerror(errno));
  }
  ~OpenFile() { close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  void write(std::span<const std::byte> bytes, uint64_t offset) const {
    while (!bytes.empty()) {
      const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail(n == 0 ? "it takes no more bytes" : std::strerror(errno));
      bytes = bytes.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
  }

  void read(std::span<std::byte> bytes, uint64_t offset) const {
    while (!bytes.empty()) {
      const ssize_t n = pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail(std::strerror(errno));
      if (n == 0) fail("it ends at byte " + std::to_string(offset));
      bytes = bytes.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw EngineError(code_, "\"" + path_ + "\": " + reason);
  }

 private:
  const std::string& path_;
  const char* code_;
  int fd_;
};

void check_blocks(const KvGeometry& geometry, std::span<const uint32_t> blocks) {
  for (const uint32_t block : blocks) {
    COX_CHECK(block < geometry.blocks, "pages are of blocks that exist");
  }
}

constexpr int64_t kCountMax = 1 << 20;  // layers or KV heads that any model has

bool within(int64_t from, int64_t count, int64_t total) {
  return from >= 0 && count >= 0 && from <= total && count <= total - from;
}

}  // namespace

uint64_t page_chunk_bytes(const KvGeometry& geometry) {
  return 2ull * static_cast<uint64_t>(kernels::kKvBlockTokens) *
         static_cast<uint64_t>(geometry.head_dim) * kernels::kv_element_bytes(geometry.type);
}

void write_pages(const KvBlocks& kv, PageFile& file, std::span<const uint32_t> blocks,
                 const Interrupt& interrupt) {
  const KvGeometry& geometry = kv.geometry();
  check_blocks(geometry, blocks);
  const OpenFile out(file.path, O_WRONLY, "KV_WRITE_FAILED");
  const uint64_t chunk = page_chunk_bytes(geometry);
  file.layers = geometry.layers;
  file.kv_heads = geometry.kv_heads;
  file.checksums.clear();
  uint64_t offset = file.offset;
  for (const uint32_t block : blocks) {
    for (int64_t layer = 0; layer < geometry.layers; ++layer) {
      interrupt();
      for (int64_t head = 0; head < geometry.kv_heads; ++head, offset += chunk) {
        const std::span<const std::byte> bytes(kv.keys(layer, block, head), chunk);
        file.checksums.push_back(xxh64(bytes));
        out.write(bytes, offset);
      }
    }
  }
}

void read_pages(KvBlocks& kv, const PageFile& file, const PageBox& box,
                std::span<const uint32_t> blocks, const Interrupt& interrupt) {
  const KvGeometry& geometry = kv.geometry();
  check_blocks(geometry, blocks);
  COX_CHECK(within(box.layer, box.layers, geometry.layers) &&
                within(box.head, box.heads, geometry.kv_heads),
            "a box lies within the shard");
  const OpenFile in(file.path, O_RDONLY, "KV_DAMAGED");
  // What is said of the file comes from a disk too.
  const bool sane = file.layers > 0 && file.layers <= kCountMax && file.kv_heads > 0 &&
                    file.kv_heads <= kCountMax && within(box.file_layer, box.layers, file.layers) &&
                    within(box.file_head, box.heads, file.kv_heads) &&
                    file.checksums.size() == blocks.size() * static_cast<size_t>(file.layers) *
                                                 static_cast<size_t>(file.kv_heads);
  if (!sane) in.fail("its layers, KV heads and checksums do not fit together");
  const uint64_t chunk = page_chunk_bytes(geometry);
  for (size_t page = 0; page < blocks.size(); ++page) {
    for (int64_t layer = 0; layer < box.layers; ++layer) {
      interrupt();
      // The heads of one layer follow one another in the file and in memory.
      const size_t index =
          (page * static_cast<size_t>(file.layers) + static_cast<size_t>(box.file_layer + layer)) *
              static_cast<size_t>(file.kv_heads) +
          static_cast<size_t>(box.file_head);
      std::byte* const to = kv.keys(box.layer + layer, blocks[page], box.head);
      in.read({to, chunk * static_cast<uint64_t>(box.heads)}, file.offset + index * chunk);
      for (int64_t head = 0; head < box.heads; ++head) {
        const std::span<const std::byte> bytes(to + chunk * static_cast<uint64_t>(head), chunk);
        if (xxh64(bytes) != file.checksums[index + static_cast<size_t>(head)]) {
          in.fail("the checksum of page " + std::to_string(page) + ", layer " +
                  std::to_string(box.file_layer + layer) + ", KV head " +
                  std::to_string(box.file_head + head) + " differs");
        }
      }
    }
  }
}

}  // namespace coxswain::engine

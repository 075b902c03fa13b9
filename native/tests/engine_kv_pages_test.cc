// KV blocks written to a file come back bit by bit, whole or in part; damage is named and never
// taken for state.
#include "engine/kv_pages.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "check.h"

using namespace coxswain;
using namespace coxswain::engine;

namespace {

const KvGeometry kWhole{3, 4, 8, 5, kernels::KvType::kF16};

ThreadPool& pool() {
  static ThreadPool threads(2, 0);
  return threads;
}

struct Scratch {
  std::string path;
  Scratch() {
    path = (std::filesystem::temp_directory_path() / "cox-pages-XXXXXX").string();
    const int fd = mkstemp(path.data());
    CHECK(fd >= 0);
    close(fd);
  }
  ~Scratch() { unlink(path.c_str()); }
};

void fill(KvBlocks& kv, uint32_t seed) {
  std::mt19937 random(seed);
  std::byte* bytes = kv.keys(0, 0, 0);
  for (uint64_t i = 0; i < kv.bytes(); ++i) bytes[i] = std::byte(random() & 0xffu);
}

std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const EngineError& error) {
    return error.code() + ": " + error.what();
  }
  return "";
}

const Interrupt kNever = [] {};

bool same_chunk(const KvBlocks& a, int64_t la, uint32_t ba, int64_t ha, const KvBlocks& b,
                int64_t lb, uint32_t bb, int64_t hb) {
  return std::memcmp(a.keys(la, ba, ha), b.keys(lb, bb, hb), page_chunk_bytes(a.geometry())) == 0;
}

void all_chunks_come_back(const KvBlocks& source, PageFile& file) {
  KvBlocks target(kWhole, pool());
  read_pages(target, file, {0, 0, 3, 0, 0, 4}, std::vector<uint32_t>{1, 4}, kNever);
  for (int64_t layer = 0; layer < 3; ++layer) {
    for (int64_t head = 0; head < 4; ++head) {
      CHECK(same_chunk(source, layer, 2, head, target, layer, 1, head));
      CHECK(same_chunk(source, layer, 0, head, target, layer, 4, head));
    }
  }
}

// A rank of another plan: layers 1..2 and heads 2..3 as its own 0..1.
void a_part_comes_back(const KvBlocks& source, PageFile& file) {
  KvBlocks target(KvGeometry{2, 2, 8, 2, kernels::KvType::kF16}, pool());
  read_pages(target, file, {1, 0, 2, 2, 0, 2}, std::vector<uint32_t>{1, 0}, kNever);
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t head = 0; head < 2; ++head) {
      CHECK(same_chunk(source, layer + 1, 2, head + 2, target, layer, 1, head));
      CHECK(same_chunk(source, layer + 1, 0, head + 2, target, layer, 0, head));
    }
  }
}

void damage_is_named(PageFile& file) {
  KvBlocks target(kWhole, pool());
  const std::vector<uint32_t> blocks{0, 1};
  const auto read = [&] { read_pages(target, file, {0, 0, 3, 0, 0, 4}, blocks, kNever); };
  const uint64_t chunk = page_chunk_bytes(kWhole);
  const int fd = open(file.path.c_str(), O_RDWR | O_CLOEXEC);
  for (const uint64_t at : {uint64_t{0}, 13 * chunk + 77, 24 * chunk - 1}) {
    std::byte byte{};
    CHECK(pread(fd, &byte, 1, static_cast<off_t>(file.offset + at)) == 1);
    const std::byte flipped = byte ^ std::byte{4};
    CHECK(pwrite(fd, &flipped, 1, static_cast<off_t>(file.offset + at)) == 1);
    CHECK(failure_of(read).starts_with("KV_DAMAGED: \"" + file.path + "\": the checksum of page " +
                                       std::to_string(at / chunk / 12)));
    CHECK(pwrite(fd, &byte, 1, static_cast<off_t>(file.offset + at)) == 1);
  }
  CHECK(failure_of(read).empty());
  CHECK(ftruncate(fd, static_cast<off_t>(file.offset + 24 * chunk - 1)) == 0);
  CHECK(failure_of(read).find("it ends at byte") != std::string::npos);
  close(fd);
  PageFile lying = file;
  lying.checksums.pop_back();
  CHECK(failure_of([&] {
          read_pages(target, lying, {0, 0, 3, 0, 0, 4}, blocks, kNever);
        }).find("do not fit together") != std::string::npos);
  PageFile absent = file;
  absent.path += ".absent";
  CHECK(failure_of([&] {
          read_pages(target, absent, {0, 0, 3, 0, 0, 4}, blocks, kNever);
        }).starts_with("KV_DAMAGED"));
}

}  // namespace

int main() {
  KvBlocks source(kWhole, pool());
  fill(source, 7);
  const Scratch scratch;
  PageFile file{scratch.path, 4096, 0, 0, {}};
  write_pages(source, file, std::vector<uint32_t>{2, 0}, kNever);
  CHECK(file.checksums.size() == 2 * 3 * 4);
  all_chunks_come_back(source, file);
  a_part_comes_back(source, file);
  CHECK(failure_of([&] {
          write_pages(source, file, std::vector<uint32_t>{2},
                      [] { throw EngineError("EPOCH_FENCED", "enough"); });
        }) == "EPOCH_FENCED: enough");
  write_pages(source, file, std::vector<uint32_t>{2, 0}, kNever);
  damage_is_named(file);
  PageFile nowhere{scratch.path + "/file", 0, 0, 0, {}};
  CHECK(failure_of([&] {
          write_pages(source, nowhere, std::vector<uint32_t>{1}, kNever);
        }).starts_with("KV_WRITE_FAILED"));
  return coxswain::testing::finish("engine_kv_pages_test");
}

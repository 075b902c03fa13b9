// A file that is there whole or not at all: written beside its path under a temporary name, synced,
// then renamed, the directory synced. Whatever ends early removes the temporary file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace coxswain::quantize {

class OutputFile {
 public:
  // Creates the temporary file and reserves `bytes`. FILE_UNREADABLE when the path exists and
  // `replace` is false, or the directory cannot be written; DISK_FULL when the space is not there.
  OutputFile(std::string path, uint64_t bytes, bool replace);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Any thread; ranges of different calls must not overlap.
  void write_at(uint64_t offset, std::span<const std::byte> bytes) const;
  // Makes the file appear under its path. The last call.
  void publish();

 private:
  [[noreturn]] void fail(const std::string& doing, int error) const;
  void discard();
  void rename_over();

  std::string path_, temporary_, directory_;
  bool replace_;
  int fd_ = -1;
};

}  // namespace coxswain::quantize

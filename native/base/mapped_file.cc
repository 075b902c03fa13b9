// mmap behind mapped_file.h (Linux, macOS).
#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace coxswain {
namespace {

[[noreturn]] void unreadable(const std::string& path, const std::string& reason) {
  throw EngineError("FILE_UNREADABLE", "cannot read \"" + path + "\": " + reason);
}

// Closes on every way out of the constructor; the mapping outlives the descriptor.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

// The whole pages inside [data, data + count): hints must not touch a neighbour's bytes.
std::span<std::byte> inner_pages(const std::byte* data, size_t count) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (address + page - 1) / page * page;
  const uintptr_t end = (address + count) / page * page;
  if (begin >= end) return {};
  return {reinterpret_cast<std::byte*>(begin), end - begin};
}

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  // O_NONBLOCK: opening a pipe by mistake must fail below, not wait for a writer.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) unreadable(path, std::strerror(errno));
  struct stat status{};
  if (fstat(file.fd, &status) != 0) unreadable(path, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) unreadable(path, "it is a directory");
  if (!S_ISREG(status.st_mode)) unreadable(path, "it is not a regular file");
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* mapping = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd, 0);
  if (mapping == MAP_FAILED) unreadable(path, std::strerror(errno));
  data_ = static_cast<const std::byte*>(mapping);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

// Hints may fail harmlessly (locked pages, old kernels), so results are not looked at.
void MappedFile::release(const std::byte* data, size_t count) const {
  const std::span<std::byte> pages = inner_pages(data, count);
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_DONTNEED);
}

void MappedFile::will_need(const std::byte* data, size_t count) const {
  const std::span<std::byte> pages = inner_pages(data, count);
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_WILLNEED);
}

}  // namespace coxswain

// A file mapped read-only for the life of the object.
//
// The mapping's length is fixed when it is opened. A file that is cut short by someone else while
// it is mapped ends the process on the next touch (SIGBUS): model files are replaced by rename,
// never written in place.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace coxswain {

class MappedFile {
 public:
  // EngineError FILE_UNREADABLE, naming the path and the system's reason: missing, not a regular
  // file, no permission, cannot be mapped. An empty file maps to an empty span.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Hints for [data, data + count), clamped to whole pages inside the range.
  void release(const std::byte* data, size_t count) const;
  void will_need(const std::byte* data, size_t count) const;

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace coxswain

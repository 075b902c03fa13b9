// Reads little-endian fields of one GGUF part front to back, never past its end.
//
// Every failure is an EngineError that names the file, the byte and what was being read. Counts are
// compared with the bytes that are left before anything is reserved for them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/error.h"

namespace coxswain::weights {

// A name out of an untrusted file, fit for a message: printable ASCII, at most 80 characters.
std::string quoted(std::string_view text);

class GgufCursor {
 public:
  GgufCursor(std::span<const std::byte> bytes, std::string file)
      : bytes_(bytes), file_(std::move(file)) {}

  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& file() const { return file_; }
  // What the messages say is being read, e.g. `key "general.name"`.
  void set_subject(std::string subject) { subject_ = std::move(subject); }

  template <typename T>
  T read() {
    static_assert(std::is_arithmetic_v<T>);
    need(sizeof(T));
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  // u64 length, then that many bytes (not necessarily UTF-8); points into the part.
  std::string_view read_string(uint64_t longest);

  [[noreturn]] void invalid(const std::string& fact) const { fail("GGUF_INVALID", fact); }
  [[noreturn]] void unsupported(const std::string& fact) const { fail("GGUF_UNSUPPORTED", fact); }

 private:
  void need(uint64_t count) const;
  [[noreturn]] void fail(const char* code, const std::string& fact) const;

  std::span<const std::byte> bytes_;
  std::string file_;
  std::string subject_ = "header";
  size_t position_ = 0;
};

}  // namespace coxswain::weights

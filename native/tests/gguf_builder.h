// Builds GGUF images in memory for tests: well-formed by default, each rule breakable on its own.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor_type.h"

namespace coxswain::testing {

class GgufBuilder {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;    // of the data; set the key yourself when it is not 32
  int64_t extra_tensors = 0;  // added to the stated counts
  int64_t extra_keys = 0;

  GgufBuilder& u32(std::string_view key, uint32_t value) { return scalar(key, 4, value); }
  GgufBuilder& i32(std::string_view key, int32_t value) { return scalar(key, 5, value); }
  GgufBuilder& u16(std::string_view key, uint16_t value) { return scalar(key, 2, value); }
  GgufBuilder& u64(std::string_view key, uint64_t value) { return scalar(key, 10, value); }
  GgufBuilder& f32(std::string_view key, float value) { return scalar(key, 6, value); }
  GgufBuilder& boolean(std::string_view key, uint8_t value) { return scalar(key, 7, value); }
  GgufBuilder& text(std::string_view key, std::string_view value) {
    begin_key(key, 8);
    put_string(keys_, value);
    return *this;
  }
  GgufBuilder& texts(std::string_view key, const std::vector<std::string>& values) {
    begin_key(key, 9);
    put(keys_, uint32_t{8});
    put(keys_, static_cast<uint64_t>(values.size()));
    for (const std::string& value : values) put_string(keys_, value);
    return *this;
  }
  template <typename T>
  GgufBuilder& array(std::string_view key, uint32_t type, const std::vector<T>& values) {
    begin_key(key, 9);
    put(keys_, type);
    put(keys_, static_cast<uint64_t>(values.size()));
    for (const T& value : values) put(keys_, value);
    return *this;
  }
  // A key whose type and value bytes are given raw.
  GgufBuilder& raw(std::string_view key, uint32_t type, const std::vector<uint8_t>& bytes) {
    begin_key(key, type);
    for (const uint8_t byte : bytes) put(keys_, byte);
    return *this;
  }

  // Fills the tensor with bytes that depend on `salt`.
  GgufBuilder& tensor(std::string_view name, const std::vector<int64_t>& dims, TensorType type,
                      uint32_t salt = 1) {
    size_t bytes = row_bytes(type, dims[0]);
    for (size_t i = 1; i < dims.size(); ++i) bytes *= static_cast<size_t>(dims[i]);
    pad(data_, alignment);
    entry(name, dims, static_cast<uint32_t>(type), data_.size());
    for (size_t i = 0; i < bytes; ++i) {
      // Small non-negative bytes: as floats they are denormal or tiny, as scales finite.
      data_.push_back(static_cast<std::byte>((i * 7 + salt * 13) % 31));
    }
    return *this;
  }
  // Only the directory entry.
  GgufBuilder& entry(std::string_view name, const std::vector<int64_t>& dims, uint32_t type,
                     uint64_t offset) {
    put_string(entries_, name);
    put(entries_, static_cast<uint32_t>(dims.size()));
    for (const int64_t dim : dims) put(entries_, dim);
    put(entries_, type);
    put(entries_, offset);
    ++tensor_count_;
    return *this;
  }

  std::vector<std::byte> build() const {
    std::vector<std::byte> out;
    for (const char c : std::string_view("GGUF")) out.push_back(static_cast<std::byte>(c));
    put(out, version);
    put(out, static_cast<uint64_t>(static_cast<int64_t>(tensor_count_) + extra_tensors));
    put(out, static_cast<uint64_t>(static_cast<int64_t>(key_count_) + extra_keys));
    out.insert(out.end(), keys_.begin(), keys_.end());
    out.insert(out.end(), entries_.begin(), entries_.end());
    if (tensor_count_ > 0) pad(out, alignment);
    out.insert(out.end(), data_.begin(), data_.end());
    return out;
  }

 private:
  template <typename T>
  static void put(std::vector<std::byte>& out, T value) {
    const size_t at = out.size();
    out.resize(at + sizeof(T));
    std::memcpy(out.data() + at, &value, sizeof(T));
  }
  static void put_string(std::vector<std::byte>& out, std::string_view value) {
    put(out, static_cast<uint64_t>(value.size()));
    for (const char c : value) out.push_back(static_cast<std::byte>(c));
  }
  static void pad(std::vector<std::byte>& out, uint64_t alignment) {
    while (out.size() % alignment != 0) out.push_back(std::byte{0});
  }
  void begin_key(std::string_view key, uint32_t type) {
    put_string(keys_, key);
    put(keys_, type);
    ++key_count_;
  }
  template <typename T>
  GgufBuilder& scalar(std::string_view key, uint32_t type, T value) {
    begin_key(key, type);
    put(keys_, value);
    return *this;
  }

  std::vector<std::byte> keys_, entries_, data_;
  uint64_t key_count_ = 0;
  uint64_t tensor_count_ = 0;
};

}  // namespace coxswain::testing

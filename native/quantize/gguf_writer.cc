// Source of the layout: the GGUF v3 container (little-endian, as is every host this is built for).
#include "quantize/gguf_writer.h"

#include <bit>
#include <cstring>
#include <set>
#include <span>

#include "base/error.h"

namespace coxswain::quantize {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint32_t kVersion = 3;
constexpr uint32_t kU32 = 4;  // value type
constexpr int64_t kDefaultAlignment = 32;

class Bytes {
 public:
  template <typename T>
  void put(T value) {
    std::byte raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    put_span(raw);
  }
  void put_text(const std::string& text) {
    put(static_cast<uint64_t>(text.size()));
    put_span(std::as_bytes(std::span(text)));
  }
  void put_span(std::span<const std::byte> span) {
    bytes_.insert(bytes_.end(), span.begin(), span.end());
  }
  void pad(uint64_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(std::byte{0});
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

uint64_t rounded_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

struct Keys {
  Bytes bytes;
  uint64_t count = 0;
};

Keys keys_of(const weights::GgufFile& source,
             const std::vector<std::pair<std::string, uint32_t>>& numbers) {
  Keys keys;
  std::set<std::string> set_anew;
  for (const auto& [key, value] : numbers) set_anew.insert(key);
  for (size_t i = 0; i < source.metadata().size(); ++i) {
    const std::string& key = source.metadata()[i].first;
    if (key.starts_with("split.") || set_anew.contains(key)) continue;
    keys.bytes.put_text(key);
    keys.bytes.put_span(source.raw_value(i));
    ++keys.count;
  }
  for (const auto& [key, value] : numbers) {
    keys.bytes.put_text(key);
    keys.bytes.put(kU32);
    keys.bytes.put(value);
    ++keys.count;
  }
  return keys;
}

}  // namespace

FileLayout lay_out(const weights::GgufFile& source,
                   const std::vector<std::pair<std::string, uint32_t>>& numbers,
                   const std::vector<NewTensor>& tensors) {
  const uint64_t alignment =
      static_cast<uint64_t>(source.integer_or("general.alignment", kDefaultAlignment));
  Keys keys = keys_of(source, numbers);
  Bytes head;
  head.put_span(std::as_bytes(std::span("GGUF", 4)));
  head.put(kVersion);
  head.put(static_cast<uint64_t>(tensors.size()));
  head.put(keys.count);
  head.put_span(keys.bytes.take());
  FileLayout layout;
  uint64_t offset = 0;
  for (const NewTensor& tensor : tensors) {
    head.put_text(tensor.name);
    head.put(static_cast<uint32_t>(tensor.dim_count));
    for (int i = 0; i < tensor.dim_count; ++i) head.put(tensor.dims[static_cast<size_t>(i)]);
    head.put(static_cast<uint32_t>(tensor.type));
    head.put(offset);
    layout.position.push_back(offset);
    if (__builtin_add_overflow(offset, rounded_up(tensor.bytes, alignment), &offset)) {
      throw EngineError("GGUF_INVALID", "the file would be larger than 64 bits can count");
    }
  }
  head.pad(alignment);
  layout.head = head.take();
  for (uint64_t& position : layout.position) position += layout.head.size();
  layout.file_bytes = layout.head.size() + offset;
  return layout;
}

}  // namespace coxswain::quantize

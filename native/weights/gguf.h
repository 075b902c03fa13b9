// Reader of GGUF v3 files (split files too), strictly validated before anything is used.
//
// A hostile file gets an EngineError ("GGUF_INVALID", "GGUF_UNSUPPORTED", "FILE_UNREADABLE") that
// names the file, the field and the offset; never a crash, a hang, or more memory than a small
// multiple of the bytes read. parse() works on bytes, so that the fuzz test needs no files.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "base/tensor_type.h"

namespace coxswain::weights {

// Numbers are widened: every unsigned type to uint64_t, signed to int64_t, floats to double.
using GgufScalar = std::variant<uint64_t, int64_t, double, bool, std::string>;
struct GgufArray {
  std::variant<std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>, std::vector<bool>,
               std::vector<std::string>>
      values;
  size_t size() const;
};
using GgufValue = std::variant<GgufScalar, GgufArray>;

struct TensorInfo {
  std::string name;
  TensorType type;
  std::array<int64_t, 4> dims;  // dims[0] fastest: {in, out} for a linear weight
  int dim_count;
  int file_index;         // which part of a split model
  const std::byte* data;  // into the mapping of that part
  size_t bytes;
  size_t row_bytes;  // bytes of dims[0] elements
  int64_t rows() const { return dims[1] * dims[2] * dims[3]; }
};

class GgufFile {
 public:
  // Opens and maps `path` and, when it is any part of a split model, all its siblings.
  static std::shared_ptr<const GgufFile> open(const std::string& path);
  // One part from memory (must outlive the result, aligned to 8); split.count > 1 is refused here.
  static std::shared_ptr<const GgufFile> parse(std::span<const std::byte> bytes,
                                               const std::string& name);
  // All parts of a split model from memory, in order; `names` are for messages.
  static std::shared_ptr<const GgufFile> parse_parts(
      const std::vector<std::span<const std::byte>>& parts, const std::vector<std::string>& names);

  const std::vector<std::pair<std::string, GgufValue>>& metadata() const { return metadata_; }
  // The value of metadata()[index] as the file has it: type id, then value. For writers, which must
  // keep widths that GgufValue widens.
  std::span<const std::byte> raw_value(size_t index) const { return raw_values_.at(index); }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find_tensor(std::string_view name) const;
  const TensorInfo& tensor(std::string_view name) const;  // GGUF_INVALID when absent
  const GgufValue* find(std::string_view key) const;

  // Typed look-ups; the wrong type or a value out of range is GGUF_INVALID naming the key.
  int64_t integer(std::string_view key) const;
  int64_t integer_or(std::string_view key, int64_t fallback) const;
  double number_or(std::string_view key, double fallback) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string string(std::string_view key) const;
  std::string string_or(std::string_view key, std::string_view fallback) const;

  uint64_t file_bytes() const;  // all parts
  // SHA-256 over metadata, tensor directory, first and last 64 KiB of every tensor (64 hex digits).
  // Independent of path, splitting, alignment and order: same model, same fingerprint.
  std::string fingerprint() const;
  // Hint that pages of [data, data+bytes) are no longer needed (after packing).
  void release_pages(const std::byte* data, size_t bytes) const;

 private:
  friend class GgufParser;
  GgufFile() = default;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
  std::vector<std::span<const std::byte>> raw_values_;
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> key_index_;
  std::unordered_map<std::string, size_t> tensor_index_;
  std::vector<std::shared_ptr<const MappedFile>> parts_;  // empty after parse()
  std::string name_;                                      // of the first part, for messages
  uint64_t file_bytes_ = 0;
};

}  // namespace coxswain::weights

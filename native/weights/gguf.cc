// GgufFile: opening, typed look-ups, page hints. The reader itself is gguf_parser.cc.
#include "weights/gguf.h"

#include <limits>

#include "base/error.h"
#include "weights/gguf_cursor.h"
#include "weights/gguf_parser.h"

namespace coxswain::weights {
namespace {

[[noreturn]] void wrong(const std::string& file, std::string_view key, const std::string& fact) {
  throw EngineError("GGUF_INVALID", quoted(file) + ": key " + quoted(key) + " " + fact);
}

const GgufScalar* scalar_of(const GgufValue* value) {
  return value == nullptr ? nullptr : std::get_if<GgufScalar>(value);
}

NamedPart read_part(std::span<const std::byte> bytes, const std::string& name) {
  return {parse_gguf_part(bytes, name), name, bytes.size()};
}

}  // namespace

size_t GgufArray::size() const {
  return std::visit([](const auto& list) { return list.size(); }, values);
}

std::shared_ptr<const GgufFile> GgufFile::open(const std::string& path) {
  auto map = std::make_shared<const MappedFile>(path);
  NamedPart part = read_part(map->bytes(), path);
  const int64_t count = split_count(part);
  std::vector<std::shared_ptr<const MappedFile>> maps;
  std::vector<NamedPart> parts;
  if (count == 1) {
    maps.push_back(std::move(map));
    parts.push_back(std::move(part));
    return GgufParser::join(std::move(parts), std::move(maps));
  }
  for (const std::string& part_path : split_part_paths(path, count)) {
    maps.push_back(std::make_shared<const MappedFile>(part_path));
    parts.push_back(read_part(maps.back()->bytes(), part_path));
  }
  return GgufParser::join(std::move(parts), std::move(maps));
}

std::shared_ptr<const GgufFile> GgufFile::parse(std::span<const std::byte> bytes,
                                                const std::string& name) {
  return parse_parts({bytes}, {name});
}

std::shared_ptr<const GgufFile> GgufFile::parse_parts(
    const std::vector<std::span<const std::byte>>& parts, const std::vector<std::string>& names) {
  COX_CHECK(parts.size() == names.size(), "every part has a name");
  std::vector<NamedPart> named;
  for (size_t i = 0; i < parts.size(); ++i) named.push_back(read_part(parts[i], names[i]));
  return GgufParser::join(std::move(named), {});
}

const TensorInfo* GgufFile::find_tensor(std::string_view name) const {
  const auto found = tensor_index_.find(std::string(name));
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

const TensorInfo& GgufFile::tensor(std::string_view name) const {
  const TensorInfo* tensor = find_tensor(name);
  if (tensor == nullptr) {
    throw EngineError("GGUF_INVALID", quoted(name_) + ": tensor " + quoted(name) + " is missing");
  }
  return *tensor;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = key_index_.find(std::string(key));
  return found == key_index_.end() ? nullptr : &metadata_[found->second].second;
}

int64_t GgufFile::integer(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) wrong(name_, key, "is missing");
  const GgufScalar* scalar = scalar_of(value);
  if (scalar != nullptr) {
    if (const int64_t* number = std::get_if<int64_t>(scalar)) return *number;
    if (const uint64_t* number = std::get_if<uint64_t>(scalar)) {
      if (*number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        wrong(name_, key, "is out of range: " + std::to_string(*number));
      }
      return static_cast<int64_t>(*number);
    }
  }
  wrong(name_, key, "is not a whole number");
}

int64_t GgufFile::integer_or(std::string_view key, int64_t fallback) const {
  return find(key) == nullptr ? fallback : integer(key);
}

double GgufFile::number_or(std::string_view key, double fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return fallback;
  const GgufScalar* scalar = scalar_of(value);
  if (scalar != nullptr) {
    if (const double* number = std::get_if<double>(scalar)) return *number;
    if (const int64_t* number = std::get_if<int64_t>(scalar)) return static_cast<double>(*number);
    if (const uint64_t* number = std::get_if<uint64_t>(scalar)) return static_cast<double>(*number);
  }
  wrong(name_, key, "is not a number");
}

bool GgufFile::boolean_or(std::string_view key, bool fallback) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return fallback;
  const GgufScalar* scalar = scalar_of(value);
  if (scalar != nullptr) {
    if (const bool* flag = std::get_if<bool>(scalar)) return *flag;
  }
  wrong(name_, key, "is not a truth value");
}

std::string GgufFile::string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) wrong(name_, key, "is missing");
  const GgufScalar* scalar = scalar_of(value);
  if (scalar != nullptr) {
    if (const std::string* text = std::get_if<std::string>(scalar)) return *text;
  }
  wrong(name_, key, "is not a string");
}

std::string GgufFile::string_or(std::string_view key, std::string_view fallback) const {
  return find(key) == nullptr ? std::string(fallback) : string(key);
}

uint64_t GgufFile::file_bytes() const { return file_bytes_; }

void GgufFile::release_pages(const std::byte* data, size_t bytes) const {
  for (const std::shared_ptr<const MappedFile>& part : parts_) {
    const std::span<const std::byte> whole = part->bytes();
    if (data >= whole.data() && data < whole.data() + whole.size()) {
      part->release(data, bytes);
      return;
    }
  }
}

}  // namespace coxswain::weights

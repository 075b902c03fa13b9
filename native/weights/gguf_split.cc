// Split models: names of the parts, and their union into one GgufFile.
#include <cstdio>

#include "base/error.h"
#include "weights/gguf_parser.h"

namespace coxswain::weights {
namespace {

constexpr int64_t kMaxParts = 99999;  // five digits of the name

[[noreturn]] void invalid(const std::string& file, const std::string& fact) {
  throw EngineError("GGUF_INVALID", quoted(file) + ": " + fact);
}

// Look-ups on the raw list, before an index exists. -1 when absent.
int64_t number_of(const NamedPart& named, std::string_view key) {
  for (const auto& [name, value] : named.part.metadata) {
    if (name != key) continue;
    const GgufScalar* scalar = std::get_if<GgufScalar>(&value);
    if (scalar != nullptr) {
      if (const uint64_t* u = std::get_if<uint64_t>(scalar); u != nullptr && *u <= INT64_MAX) {
        return static_cast<int64_t>(*u);
      }
      if (const int64_t* i = std::get_if<int64_t>(scalar); i != nullptr && *i >= 0) return *i;
    }
    invalid(named.name, "key " + quoted(key) + " is not a whole number that is at least 0");
  }
  return -1;
}

void check_part(const NamedPart& named, size_t index, size_t count) {
  const int64_t stated_count = number_of(named, "split.count");
  const int64_t stated_index = number_of(named, "split.no");
  if (count == 1) {
    if (stated_count > 1) {
      invalid(named.name, "it is one of " + std::to_string(stated_count) +
                              " parts of a split model; the others are needed too");
    }
    return;
  }
  if (stated_count != static_cast<int64_t>(count)) {
    invalid(named.name, "split.count is " + std::to_string(stated_count) + ", but the model has " +
                            std::to_string(count) + " parts");
  }
  if (stated_index != static_cast<int64_t>(index)) {
    invalid(named.name, "split.no is " + std::to_string(stated_index) + ", but this is part " +
                            std::to_string(index + 1) + " (number " + std::to_string(index) + ")");
  }
}

bool all_digits(std::string_view text) {
  return text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::vector<std::string> split_part_paths(const std::string& path, int64_t count) {
  // -NNNNN-of-NNNNN.gguf
  constexpr size_t kSuffix = 1 + 5 + 4 + 5 + 5;
  const std::string_view view = path;
  const bool named = view.size() > kSuffix && view.ends_with(".gguf") &&
                     view[view.size() - kSuffix] == '-' &&
                     all_digits(view.substr(view.size() - kSuffix + 1, 5)) &&
                     view.substr(view.size() - kSuffix + 6, 4) == "-of-" &&
                     all_digits(view.substr(view.size() - kSuffix + 10, 5));
  if (!named || count > kMaxParts) {
    invalid(path,
            "it is one of " + std::to_string(count) +
                " parts of a split model, but its name does not end in -NNNNN-of-NNNNN.gguf, so "
                "the other parts cannot be found");
  }
  if (std::stoll(std::string(view.substr(view.size() - kSuffix + 10, 5))) != count) {
    invalid(path,
            "split.count is " + std::to_string(count) + ", but the file's name says otherwise");
  }
  std::vector<std::string> paths;
  for (int64_t i = 1; i <= count; ++i) {
    char suffix[64];
    std::snprintf(suffix, sizeof suffix, "-%05d-of-%05d.gguf", static_cast<int>(i),
                  static_cast<int>(count));
    paths.push_back(path.substr(0, path.size() - kSuffix) + suffix);
  }
  return paths;
}

int64_t split_count(const NamedPart& part) {
  const int64_t count = number_of(part, "split.count");
  return count < 1 ? 1 : count;
}

std::shared_ptr<const GgufFile> GgufParser::join(
    std::vector<NamedPart> parts, std::vector<std::shared_ptr<const MappedFile>> maps) {
  COX_CHECK(!parts.empty(), "a file has at least one part");
  std::shared_ptr<GgufFile> file(new GgufFile());
  file->name_ = parts[0].name;
  file->parts_ = std::move(maps);
  int64_t stated_tensors = -1;
  for (size_t i = 0; i < parts.size(); ++i) {
    NamedPart& named = parts[i];
    check_part(named, i, parts.size());
    const int64_t total = number_of(named, "split.tensors.count");
    if (total >= 0 && stated_tensors >= 0 && total != stated_tensors) {
      invalid(named.name, "split.tensors.count differs from that of an earlier part");
    }
    if (total >= 0) stated_tensors = total;
    for (TensorInfo& tensor : named.part.tensors) {
      tensor.file_index = static_cast<int>(i);
      if (!file->tensor_index_.emplace(tensor.name, file->tensors_.size()).second) {
        invalid(named.name, "tensor " + quoted(tensor.name) + " occurs in an earlier part too");
      }
      file->tensors_.push_back(std::move(tensor));
    }
    file->file_bytes_ += named.bytes;
  }
  const int64_t held = static_cast<int64_t>(file->tensors_.size());
  if (stated_tensors >= 0 && stated_tensors != held) {
    invalid(file->name_, "split.tensors.count is " + std::to_string(stated_tensors) +
                             ", but the parts hold " + std::to_string(held) + " tensors");
  }
  file->metadata_ = std::move(parts[0].part.metadata);
  file->raw_values_ = std::move(parts[0].part.raw_values);
  for (size_t i = 0; i < file->metadata_.size(); ++i) {
    file->key_index_.emplace(file->metadata_[i].first, i);
  }
  return file;
}

}  // namespace coxswain::weights

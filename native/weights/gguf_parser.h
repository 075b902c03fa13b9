// One GGUF part -> its metadata and tensor directory, validated; then parts -> one GgufFile.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weights/gguf.h"
#include "weights/gguf_cursor.h"

namespace coxswain::weights {

struct GgufPart {
  std::vector<std::pair<std::string, GgufValue>> metadata;
  std::vector<std::span<const std::byte>> raw_values;  // of metadata, one each, into the part
  std::vector<TensorInfo> tensors;                     // file_index 0
};

// EngineError GGUF_INVALID or GGUF_UNSUPPORTED; `file` is for messages.
GgufPart parse_gguf_part(std::span<const std::byte> bytes, const std::string& file);

// A part and where it came from.
struct NamedPart {
  GgufPart part;
  std::string name;  // for messages
  size_t bytes;      // of the file
};

class GgufParser {
 public:
  // Unions the parts in order: split.no, split.count, split.tensors.count and duplicates are
  // checked. `maps` (may be empty) are kept alive by the result.
  static std::shared_ptr<const GgufFile> join(std::vector<NamedPart> parts,
                                              std::vector<std::shared_ptr<const MappedFile>> maps);
};

// split.count of a part; 1 when it does not say.
int64_t split_count(const NamedPart& part);

// Paths of all parts of the split model that `path` belongs to, part 1 first; `count` from its
// split.count. GGUF_INVALID when the file's name does not end in -NNNNN-of-NNNNN.gguf.
std::vector<std::string> split_part_paths(const std::string& path, int64_t count);

}  // namespace coxswain::weights

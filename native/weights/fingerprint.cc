// The model's fingerprint: SHA-256 over a canonical text of what the parts hold, sorted by name.
//
// Left out is what says how the model is stored, not what it is: split.* keys, the alignment,
// offsets. Of every tensor the first and the last 64 KiB are hashed: a changed model differs there,
// and a 100 GB file need not be read to be recognised.
#include <algorithm>
#include <bit>

#include "base/sha256.h"
#include "weights/gguf.h"

namespace coxswain::weights {
namespace {

constexpr size_t kEdgeBytes = 64 * 1024;

// Every field carries its kind and length, so that no two different models serialise alike.
class Serialiser {
 public:
  void text(std::string_view value) {
    number('s', value.size());
    hash_.update(value);
  }
  void number(char kind, uint64_t value) {
    std::array<std::byte, 9> field;
    field[0] = static_cast<std::byte>(kind);
    for (size_t i = 0; i < 8; ++i) field[i + 1] = static_cast<std::byte>(value >> (8 * i));
    hash_.update(field);
  }
  void bytes(std::span<const std::byte> value) { hash_.update(value); }
  std::string finish() { return hex(hash_.finish()); }

 private:
  Sha256 hash_;
};

void put(Serialiser& out, uint64_t value) { out.number('u', value); }
void put(Serialiser& out, int64_t value) { out.number('i', static_cast<uint64_t>(value)); }
void put(Serialiser& out, double value) { out.number('f', std::bit_cast<uint64_t>(value)); }
void put(Serialiser& out, bool value) { out.number('b', value ? 1 : 0); }
void put(Serialiser& out, const std::string& value) { out.text(value); }

void put_value(Serialiser& out, const GgufValue& value) {
  if (const GgufScalar* scalar = std::get_if<GgufScalar>(&value)) {
    std::visit([&](const auto& v) { put(out, v); }, *scalar);
    return;
  }
  std::visit(
      [&](const auto& list) {
        out.number('a', list.size());
        for (const auto& element : list) put(out, element);
      },
      std::get<GgufArray>(value).values);
}

bool describes_storage(std::string_view key) {
  return key.starts_with("split.") || key == "general.alignment";
}

void put_tensor(Serialiser& out, const TensorInfo& tensor) {
  out.text(tensor.name);
  out.number('t', static_cast<uint64_t>(tensor.type));
  for (int i = 0; i < tensor.dim_count; ++i) {
    out.number('d', static_cast<uint64_t>(tensor.dims[static_cast<size_t>(i)]));
  }
  const std::span<const std::byte> whole(tensor.data, tensor.bytes);
  out.number('n', whole.size());
  const size_t head = std::min(kEdgeBytes, whole.size());
  out.bytes(whole.first(head));
  out.bytes(whole.last(std::min(kEdgeBytes, whole.size() - head)));
}

}  // namespace

std::string GgufFile::fingerprint() const {
  Serialiser out;
  std::vector<const std::pair<std::string, GgufValue>*> keys;
  for (const auto& entry : metadata_) {
    if (!describes_storage(entry.first)) keys.push_back(&entry);
  }
  std::sort(keys.begin(), keys.end(),
            [](const auto* a, const auto* b) { return a->first < b->first; });
  for (const auto* entry : keys) {
    out.text(entry->first);
    put_value(out, entry->second);
  }
  std::vector<const TensorInfo*> tensors;
  for (const TensorInfo& tensor : tensors_) tensors.push_back(&tensor);
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->name < b->name; });
  for (const TensorInfo* tensor : tensors) put_tensor(out, *tensor);
  return out.finish();
}

}  // namespace coxswain::weights

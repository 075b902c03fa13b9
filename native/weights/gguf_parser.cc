// The reader of one part. Layout and limits: the GGUF v3 container.
#include "weights/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_set>

namespace coxswain::weights {
namespace {

// Limits of this reader, far above any published model; they bound what a hostile file can make us
// hold.
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 20;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 63;
constexpr uint64_t kMaxStringBytes = 64 << 20;
constexpr uint64_t kMaxArrayElements = 1 << 24;  // over all arrays of one part
constexpr uint64_t kMaxAlignment = 1 << 20;

enum class ValueType : uint32_t {
  kU8 = 0,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

// Ids that other programs define and this engine does not compute with.
std::string_view unsupported_type_name(uint32_t id) {
  switch (id) {
    case 9:
      return "Q8_1";
    case 15:
      return "Q8_K";
    case 19:
      return "IQ1_S";
    case 24:
      return "I8";
    case 25:
      return "I16";
    case 26:
      return "I32";
    case 27:
      return "I64";
    case 28:
      return "F64";
    case 29:
      return "IQ1_M";
    case 34:
      return "TQ1_0";
    case 35:
      return "TQ2_0";
    case 40:
      return "NVFP4";
    case 41:
      return "Q1_0";
    case 42:
      return "Q2_0";
    default:
      return {};
  }
}

class PartReader {
 public:
  PartReader(std::span<const std::byte> bytes, const std::string& file) : cursor_(bytes, file) {}

  GgufPart read() {
    read_header();
    for (uint64_t i = 0; i < key_count_; ++i) read_key();
    for (uint64_t i = 0; i < tensor_count_; ++i) read_tensor();
    place_tensors();
    return std::move(part_);
  }

 private:
  void read_header() {
    constexpr std::string_view kMagic = "GGUF";
    if (cursor_.remaining() < 4 ||
        std::memcmp(cursor_.bytes().data(), kMagic.data(), kMagic.size()) != 0) {
      cursor_.invalid("not a GGUF file (it does not begin with \"GGUF\")");
    }
    cursor_.read<uint32_t>();
    const uint32_t version = cursor_.read<uint32_t>();
    if (version == 0x03000000u || version == 0x02000000u) {
      cursor_.unsupported("big-endian GGUF files are not supported; convert the model again");
    }
    if (version != 2 && version != 3) {
      cursor_.unsupported("GGUF version " + std::to_string(version) +
                          " is not supported (versions 2 and 3 are)");
    }
    tensor_count_ = cursor_.read<uint64_t>();
    key_count_ = cursor_.read<uint64_t>();
    // A key takes at least 14 bytes, a tensor entry at least 33.
    check_count("keys", key_count_, kMaxKeys, 14);
    check_count("tensors", tensor_count_, kMaxTensors, 33);
    part_.metadata.reserve(static_cast<size_t>(key_count_));
    part_.raw_values.reserve(static_cast<size_t>(key_count_));
    part_.tensors.reserve(static_cast<size_t>(tensor_count_));
    offsets_.reserve(static_cast<size_t>(tensor_count_));
  }

  void check_count(const std::string& what, uint64_t count, uint64_t most, uint64_t least_bytes) {
    if (count > cursor_.remaining() / least_bytes) {
      cursor_.invalid(std::to_string(count) + " " + what + " do not fit into the " +
                      std::to_string(cursor_.remaining()) + " bytes that are left");
    }
    if (count > most) {
      cursor_.unsupported(std::to_string(count) + " " + what + " are more than the " +
                          std::to_string(most) + " that this engine reads");
    }
  }

  void read_key() {
    cursor_.set_subject("key " + std::to_string(part_.metadata.size()));
    std::string key(cursor_.read_string(kMaxKeyBytes));
    if (key.empty()) cursor_.invalid("the key is empty");
    cursor_.set_subject("key " + quoted(key));
    if (!keys_.insert(key).second) cursor_.invalid("the key occurs twice");
    const size_t begin = cursor_.position();
    const uint32_t type = cursor_.read<uint32_t>();
    GgufValue value = type == static_cast<uint32_t>(ValueType::kArray)
                          ? GgufValue(read_array())
                          : GgufValue(read_scalar(type));
    if (key == "general.alignment") take_alignment(value);
    part_.metadata.emplace_back(std::move(key), std::move(value));
    part_.raw_values.push_back(cursor_.bytes().subspan(begin, cursor_.position() - begin));
  }

  GgufScalar read_scalar(uint32_t type) {
    switch (static_cast<ValueType>(type)) {
      case ValueType::kU8:
        return uint64_t{cursor_.read<uint8_t>()};
      case ValueType::kU16:
        return uint64_t{cursor_.read<uint16_t>()};
      case ValueType::kU32:
        return uint64_t{cursor_.read<uint32_t>()};
      case ValueType::kU64:
        return cursor_.read<uint64_t>();
      case ValueType::kI8:
        return int64_t{cursor_.read<int8_t>()};
      case ValueType::kI16:
        return int64_t{cursor_.read<int16_t>()};
      case ValueType::kI32:
        return int64_t{cursor_.read<int32_t>()};
      case ValueType::kI64:
        return cursor_.read<int64_t>();
      case ValueType::kF32:
        return static_cast<double>(cursor_.read<float>());
      case ValueType::kF64:
        return cursor_.read<double>();
      case ValueType::kBool:
        return read_bool();
      case ValueType::kString:
        return std::string(cursor_.read_string(kMaxStringBytes));
      case ValueType::kArray:
        break;
    }
    cursor_.invalid("value type " + std::to_string(type) + " does not exist");
  }

  bool read_bool() {
    const uint8_t value = cursor_.read<uint8_t>();
    if (value > 1) cursor_.invalid("a truth value is " + std::to_string(value) + ", not 0 or 1");
    return value == 1;
  }

  GgufArray read_array() {
    const uint32_t type = cursor_.read<uint32_t>();
    const uint64_t count = cursor_.read<uint64_t>();
    switch (static_cast<ValueType>(type)) {
      case ValueType::kU8:
        return numbers<uint8_t, uint64_t>(count);
      case ValueType::kU16:
        return numbers<uint16_t, uint64_t>(count);
      case ValueType::kU32:
        return numbers<uint32_t, uint64_t>(count);
      case ValueType::kU64:
        return numbers<uint64_t, uint64_t>(count);
      case ValueType::kI8:
        return numbers<int8_t, int64_t>(count);
      case ValueType::kI16:
        return numbers<int16_t, int64_t>(count);
      case ValueType::kI32:
        return numbers<int32_t, int64_t>(count);
      case ValueType::kI64:
        return numbers<int64_t, int64_t>(count);
      case ValueType::kF32:
        return numbers<float, double>(count);
      case ValueType::kF64:
        return numbers<double, double>(count);
      case ValueType::kBool: {
        check_elements(count, 1);
        std::vector<bool> values;
        values.reserve(static_cast<size_t>(count));
        for (uint64_t i = 0; i < count; ++i) values.push_back(read_bool());
        return {std::move(values)};
      }
      case ValueType::kString: {
        check_elements(count, 8);
        std::vector<std::string> values;
        values.reserve(static_cast<size_t>(count));
        for (uint64_t i = 0; i < count; ++i) {
          values.emplace_back(cursor_.read_string(kMaxStringBytes));
        }
        return {std::move(values)};
      }
      case ValueType::kArray:
        cursor_.unsupported("arrays of arrays are not supported");
    }
    cursor_.invalid("array element type " + std::to_string(type) + " does not exist");
  }

  template <typename Stored, typename Widened>
  GgufArray numbers(uint64_t count) {
    check_elements(count, sizeof(Stored));
    std::vector<Widened> values;
    values.reserve(static_cast<size_t>(count));
    for (uint64_t i = 0; i < count; ++i) {
      values.push_back(static_cast<Widened>(cursor_.read<Stored>()));
    }
    return {std::move(values)};
  }

  void check_elements(uint64_t count, uint64_t least_bytes) {
    check_count("array elements", count, kMaxArrayElements - elements_, least_bytes);
    elements_ += count;
  }

  void take_alignment(const GgufValue& value) {
    const GgufScalar* scalar = std::get_if<GgufScalar>(&value);
    const uint64_t* number = scalar == nullptr ? nullptr : std::get_if<uint64_t>(scalar);
    if (number == nullptr) cursor_.invalid("the alignment is not an unsigned number");
    if (!std::has_single_bit(*number) || *number < 8 || *number > kMaxAlignment) {
      cursor_.invalid("an alignment of " + std::to_string(*number) +
                      " is not a power of two from 8 to " + std::to_string(kMaxAlignment));
    }
    alignment_ = *number;
  }

  void read_tensor() {
    cursor_.set_subject("tensor entry " + std::to_string(part_.tensors.size()));
    TensorInfo tensor;
    tensor.name = std::string(cursor_.read_string(kMaxTensorNameBytes));
    if (tensor.name.empty()) cursor_.invalid("the tensor's name is empty");
    cursor_.set_subject("tensor " + quoted(tensor.name));
    if (!names_.insert(tensor.name).second) cursor_.invalid("the tensor occurs twice");
    read_dims(tensor);
    const uint32_t type = cursor_.read<uint32_t>();
    const TensorTypeTraits* traits = find_tensor_type(type);
    if (traits == nullptr) refuse_type(type);
    tensor.type = traits->type;
    measure(tensor, *traits);
    tensor.file_index = 0;
    tensor.data = nullptr;
    offsets_.push_back(cursor_.read<uint64_t>());
    part_.tensors.push_back(std::move(tensor));
  }

  void read_dims(TensorInfo& tensor) {
    const uint32_t count = cursor_.read<uint32_t>();
    if (count < 1 || count > tensor.dims.size()) {
      cursor_.invalid("a tensor has 1 to 4 dimensions, not " + std::to_string(count));
    }
    tensor.dims = {1, 1, 1, 1};
    tensor.dim_count = static_cast<int>(count);
    int64_t elements = 1;
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t size = cursor_.read<uint64_t>();
      constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
      if (size == 0) cursor_.invalid("dimension " + std::to_string(i) + " is 0");
      if (size > kMost || __builtin_mul_overflow(elements, static_cast<int64_t>(size), &elements)) {
        cursor_.invalid("the number of elements does not fit into 63 bits");
      }
      tensor.dims[i] = static_cast<int64_t>(size);
    }
  }

  [[noreturn]] void refuse_type(uint32_t type) {
    const std::string_view name = unsupported_type_name(type);
    if (!name.empty()) {
      cursor_.unsupported("type " + std::string(name) + " is not supported by this engine");
    }
    cursor_.invalid("type id " + std::to_string(type) + " does not exist");
  }

  void measure(TensorInfo& tensor, const TensorTypeTraits& traits) {
    if (tensor.dims[0] % traits.block_elements != 0) {
      cursor_.invalid("rows of " + std::to_string(tensor.dims[0]) +
                      " elements are no multiple of the " + std::to_string(traits.block_elements) +
                      " elements of a " + std::string(traits.name) + " block");
    }
    const uint64_t blocks = static_cast<uint64_t>(tensor.dims[0] / traits.block_elements);
    uint64_t row = 0;
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(blocks, uint64_t{traits.block_bytes}, &row) ||
        __builtin_mul_overflow(row, static_cast<uint64_t>(tensor.rows()), &bytes)) {
      cursor_.invalid("the number of bytes does not fit into 64 bits");
    }
    tensor.row_bytes = static_cast<size_t>(row);
    tensor.bytes = static_cast<size_t>(bytes);
  }

  void place_tensors() {
    const uint64_t start = (cursor_.position() + alignment_ - 1) / alignment_ * alignment_;
    const uint64_t size = cursor_.bytes().size();
    const uint64_t room = size > start ? size - start : 0;
    for (size_t i = 0; i < part_.tensors.size(); ++i) {
      TensorInfo& tensor = part_.tensors[i];
      cursor_.set_subject("tensor " + quoted(tensor.name));
      if (offsets_[i] % alignment_ != 0) {
        cursor_.invalid("offset " + std::to_string(offsets_[i]) +
                        " is no multiple of the alignment " + std::to_string(alignment_));
      }
      if (offsets_[i] > room || tensor.bytes > room - offsets_[i]) {
        cursor_.invalid("its " + std::to_string(tensor.bytes) + " bytes at offset " +
                        std::to_string(offsets_[i]) + " end beyond the file's " +
                        std::to_string(room) + " bytes of tensor data (is the file cut short?)");
      }
      tensor.data = cursor_.bytes().data() + start + offsets_[i];
    }
    check_overlaps();
  }

  void check_overlaps() {
    std::vector<const TensorInfo*> order;
    order.reserve(part_.tensors.size());
    for (const TensorInfo& tensor : part_.tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(),
              [](const TensorInfo* a, const TensorInfo* b) { return a->data < b->data; });
    for (size_t i = 1; i < order.size(); ++i) {
      const TensorInfo& before = *order[i - 1];
      if (order[i]->data < before.data + before.bytes) {
        cursor_.set_subject("tensor " + quoted(order[i]->name));
        cursor_.invalid("its bytes overlap those of tensor " + quoted(before.name));
      }
    }
  }

  GgufCursor cursor_;
  GgufPart part_;
  std::vector<uint64_t> offsets_;
  std::unordered_set<std::string> keys_;
  std::unordered_set<std::string> names_;
  uint64_t key_count_ = 0;
  uint64_t tensor_count_ = 0;
  uint64_t elements_ = 0;
  uint64_t alignment_ = 32;
};

}  // namespace

GgufPart parse_gguf_part(std::span<const std::byte> bytes, const std::string& file) {
  return PartReader(bytes, file).read();
}

}  // namespace coxswain::weights

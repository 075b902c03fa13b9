// What the kernel tests share: a seeded generator, random file rows of every type, aligned memory,
// and comparison bit for bit (any NaN equals any NaN: payloads are the one thing IEEE leaves open).
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "base/half.h"
#include "base/tensor_type.h"

namespace coxswain::testing {

inline constexpr TensorType kAllTypes[] = {
    TensorType::kF32,     TensorType::kF16,     TensorType::kBF16,   TensorType::kQ4_0,
    TensorType::kQ4_1,    TensorType::kQ5_0,    TensorType::kQ5_1,   TensorType::kQ8_0,
    TensorType::kQ2_K,    TensorType::kQ3_K,    TensorType::kQ4_K,   TensorType::kQ5_K,
    TensorType::kQ6_K,    TensorType::kIQ2_XXS, TensorType::kIQ2_XS, TensorType::kIQ2_S,
    TensorType::kIQ3_XXS, TensorType::kIQ3_S,   TensorType::kIQ4_NL, TensorType::kIQ4_XS,
    TensorType::kMXFP4};

class Random {  // splitmix64
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  // Uniform in [-1, 1).
  float unit() {
    return static_cast<float>(static_cast<int64_t>(next() >> 40) - (1 << 23)) * 0x1p-23f;
  }
  // Roughly normal: a sum of four.
  float normal() { return unit() + unit() + unit() + unit(); }
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(next() % static_cast<uint64_t>(bound));
  }

 private:
  uint64_t state_;
};

// Bytes at a 64-byte boundary.
class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size)
      : data_(static_cast<uint8_t*>(::operator new(size + 1, std::align_val_t{64}))), size_(size) {
    std::memset(data_.get(), 0xa5, size);
  }
  uint8_t* data() { return data_.get(); }
  const uint8_t* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(uint8_t* p) const { ::operator delete(p, std::align_val_t{64}); }
  };
  std::unique_ptr<uint8_t, Free> data_;
  size_t size_;
};

// Offset of the f16 scale in a block, -1 where there is none; the minimum's likewise.
inline int64_t scale_offset(TensorType type) {
  switch (type) {
    case TensorType::kQ2_K:
      return 80;
    case TensorType::kQ3_K:
      return 108;
    case TensorType::kQ6_K:
      return 208;
    case TensorType::kMXFP4:
      return -1;
    default:
      return 0;
  }
}

inline int64_t minimum_offset(TensorType type) {
  switch (type) {
    case TensorType::kQ2_K:
      return 82;
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K:
      return 2;
    default:
      return -1;
  }
}

inline void put_half(uint8_t* at, float value) {
  const uint16_t bits = f32_to_f16(value);
  std::memcpy(at, &bits, 2);
}

// `rows` file rows of k columns: random bits, scales replaced by modest finite values.
inline std::vector<uint8_t> random_rows(TensorType type, int64_t rows, int64_t k, Random& random) {
  const TensorTypeTraits& traits = traits_of(type);
  std::vector<uint8_t> bytes(static_cast<size_t>(rows) * row_bytes(type, k));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.next() >> 56);
  for (size_t at = 0; at < bytes.size(); at += traits.block_bytes) {
    uint8_t* block = bytes.data() + at;
    if (type == TensorType::kF32) {
      const float value = random.normal();
      std::memcpy(block, &value, 4);
    } else if (type == TensorType::kF16) {
      put_half(block, random.normal());
    } else if (type == TensorType::kBF16) {
      const float value = random.normal();
      std::memcpy(block, reinterpret_cast<const uint8_t*>(&value) + 2, 2);
    } else if (type == TensorType::kMXFP4) {
      block[0] = static_cast<uint8_t>(random.below(20) + 110);
    } else {
      put_half(block + scale_offset(type), random.unit() * 0.05f);
      if (minimum_offset(type) >= 0) put_half(block + minimum_offset(type), random.unit() * 0.05f);
    }
  }
  return bytes;
}

inline std::vector<float> random_floats(int64_t count, Random& random) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.normal();
  return values;
}

template <class Number>
bool same_bits(Number a, Number b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class Number>
bool same_bits(const std::vector<Number>& a, const std::vector<Number>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) {
      std::fprintf(stderr, "  first difference at %zu: %a, %a\n", i, static_cast<double>(a[i]),
                   static_cast<double>(b[i]));
      return false;
    }
  }
  return true;
}

// A KV block from 256 rows of head_dim floats.
inline void fill_block(const kernels::Kernels& set, const float* rows, int64_t head_dim,
                       kernels::KvType type, bool keys, uint8_t* block) {
  const int64_t row_bytes = head_dim * static_cast<int64_t>(kernels::kv_element_bytes(type));
  for (int64_t token = 0; token < kernels::kKvBlockTokens; ++token) {
    const float* row = rows + token * head_dim;
    if (keys) {
      set.store_key(row, head_dim, type, block, token);
    } else {
      set.store_value(row, head_dim, type, block + token * row_bytes);
    }
  }
}

}  // namespace coxswain::testing

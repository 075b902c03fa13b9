// The 16 values of a codebook type as the bytes that the dot product takes: unsigned with the
// type's offset added, or (Signed) the values themselves.
#pragma once
#include <cstdint>

#include "kernels/layout.h"

namespace coxswain::kernels::vector {

struct CodeBytes {
  alignas(16) uint8_t bytes[16];
};

constexpr CodeBytes code_bytes_of(TensorType type, bool is_signed) {
  const PackLayout layout = layout_of(type);
  CodeBytes table{};
  for (int i = 0; i < 16; ++i) {
    const int offset = is_signed ? 0 : layout.offset;
    table.bytes[i] = static_cast<uint8_t>(codebook_value(layout.codebook, i) + offset);
  }
  return table;
}

template <TensorType T, bool Signed>
inline constexpr CodeBytes kCodeTable = code_bytes_of(T, Signed);

}  // namespace coxswain::kernels::vector

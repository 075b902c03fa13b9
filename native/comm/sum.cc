// Addition in vectors of four floats. Width changes no bit, since every element is summed on its
// own.
#include "comm/sum.h"

#include <cstring>

namespace coxswain::comm {
namespace {

constexpr size_t kLanes = 4;
using Lanes = float __attribute__((vector_size(16)));

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Adds `vectors` values of type T at byte offset `at`. Elementwise, so width changes no bit.
template <typename T, size_t vectors>
void add_block(std::byte* out, std::span<const std::byte* const> partials, size_t at) {
  T sums[vectors];
  for (size_t v = 0; v < vectors; ++v) sums[v] = load<T>(partials[0] + at + v * sizeof(T));
  for (size_t p = 1; p < partials.size(); ++p) {
    for (size_t v = 0; v < vectors; ++v) sums[v] += load<T>(partials[p] + at + v * sizeof(T));
  }
  std::memcpy(out + at, sums, sizeof sums);
}

}  // namespace

void sum_in_order(std::byte* out, std::span<const std::byte* const> partials, size_t count) {
  size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    add_block<Lanes, 4>(out, partials, i * sizeof(float));
  }
  for (; i < count; ++i) add_block<float, 1>(out, partials, i * sizeof(float));
}

}  // namespace coxswain::comm

// Addition in vectors of doubles. Width changes no bit, since every element is summed on its own.
#include "comm/sum.h"

#include <cstring>

namespace coxswain::comm {
namespace {

constexpr size_t kLanes = 4;
using Doubles = double __attribute__((vector_size(8 * kLanes)));
using Floats = float __attribute__((vector_size(4 * kLanes)));

// out = partials[..][at ..] for as many elements as Wide has.
template <typename Wide, typename Narrow>
void add_block(float* out, std::span<const std::byte* const> partials, size_t at) {
  const auto read = [&](const std::byte* partial, Wide& into) {
    std::memcpy(&into, partial + at * sizeof(double), sizeof into);
  };
  Wide sum;
  read(partials[0], sum);
  for (size_t p = 1; p < partials.size(); ++p) {
    Wide next;
    read(partials[p], next);
    sum += next;
  }
  Narrow rounded;
  if constexpr (sizeof(Wide) == sizeof(double)) {
    rounded = static_cast<Narrow>(sum);
  } else {
    rounded = __builtin_convertvector(sum, Narrow);
  }
  std::memcpy(out + at, &rounded, sizeof rounded);
}

}  // namespace

void sum_in_order(std::span<float> sum, std::span<const std::byte* const> partials) {
  size_t i = 0;
  for (; i + kLanes <= sum.size(); i += kLanes) add_block<Doubles, Floats>(sum.data(), partials, i);
  for (; i < sum.size(); ++i) add_block<double, float>(sum.data(), partials, i);
}

}  // namespace coxswain::comm

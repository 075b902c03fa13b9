// Adding partials in rank order: the one place where the order of a reduction is decided.
#pragma once
#include <cstddef>
#include <span>

namespace coxswain::comm {

// out[i] = ((p0[i] + p1[i]) + p2[i]) + ... for i < count; float32 little-endian at any alignment.
// `out` may be one of the partials. At least two partials.
void sum_in_order(std::byte* out, std::span<const std::byte* const> partials, size_t count);

}  // namespace coxswain::comm

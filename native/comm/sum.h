// Adding partials in rank order: the one place where the order of a reduction is decided.
#pragma once
#include <cstddef>
#include <span>

namespace coxswain::comm {

// sum[i] = float(((p0[i] + p1[i]) + p2[i]) + ...); each of the partials: sum.size() doubles,
// little-endian, at any alignment.
void sum_in_order(std::span<float> sum, std::span<const std::byte* const> partials);

}  // namespace coxswain::comm

// Cuts a row of work items into contiguous ranges, one a worker, so that the slowest finishes
// earliest. Pure arithmetic on counts and weights; equal inputs give equal cuts on every machine.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace coxswain::weights {

// Boundaries 0 = b[0] <= b[1] <= ... <= b[weights.size()] = units. Equal units: minimises
// max(units_i / weight_i). Weights are positive. Earlier workers get what is left over.
std::vector<int64_t> apportion(int64_t units, const std::vector<double>& weights);

// The same for items of unequal cost: cost(begin, end) is what a range costs (it need not be
// additive), cuts fall on multiples of `grain` only. Minimises max(cost / weight); among
// equals the numbers of items are spread evenly, since attention over long contexts grows with
// them. With `nobody_idle` every range holds at least one item (requires items >= weights.size()).
// Takes O(workers * items^2) steps.
std::vector<int64_t> partition(int64_t items, int64_t grain, const std::vector<double>& weights,
                               const std::function<double(int64_t, int64_t)>& cost,
                               bool nobody_idle);

}  // namespace coxswain::weights

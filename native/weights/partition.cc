// apportion: largest remainders by time. partition: dynamic programme over the cuts. Both compare
// doubles that every machine computes alike (no fused operations, no library functions but floor).
#include "weights/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/error.h"

namespace coxswain::weights {

std::vector<int64_t> apportion(int64_t units, const std::vector<double>& weights) {
  double total = 0;
  for (const double weight : weights) total += weight;
  std::vector<int64_t> counts;
  int64_t left = units;
  for (const double weight : weights) {
    const double fair = std::floor(static_cast<double>(units) * (weight / total));
    const int64_t count = std::min(static_cast<int64_t>(fair), left);
    counts.push_back(count);
    left -= count;
  }
  // Each unit left goes where the range, grown by it, is still the shortest for its worker.
  for (; left > 0; --left) {
    size_t best = 0;
    double best_time = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < weights.size(); ++i) {
      const double time = static_cast<double>(counts[i] + 1) / weights[i];
      if (time < best_time) {
        best_time = time;
        best = i;
      }
    }
    ++counts[best];
  }
  std::vector<int64_t> bounds = {0};
  for (const int64_t count : counts) bounds.push_back(bounds.back() + count);
  return bounds;
}

namespace {

struct Best {
  double worst = std::numeric_limits<double>::infinity();        // largest cost / weight
  double worst_count = std::numeric_limits<double>::infinity();  // largest number of items / weight
  double squares = std::numeric_limits<double>::infinity();      // of the numbers / weight
  int64_t from = -1;                                             // cut before this worker's range
  bool better_than(const Best& other) const {
    return std::tie(worst, worst_count, squares) <
           std::tie(other.worst, other.worst_count, other.squares);
  }
};

}  // namespace

std::vector<int64_t> partition(int64_t items, int64_t grain, const std::vector<double>& weights,
                               const std::function<double(int64_t, int64_t)>& cost,
                               bool nobody_idle) {
  COX_CHECK(grain > 0 && items % grain == 0, "items come in whole grains");
  const size_t cuts = static_cast<size_t>(items / grain) + 1;
  const size_t workers = weights.size();
  const auto bound = [&](size_t cut) { return static_cast<int64_t>(cut) * grain; };
  // table[w][c]: the best way to give the first c grains to the first w workers.
  std::vector<std::vector<Best>> table(workers + 1, std::vector<Best>(cuts));
  table[0][0] = {0, 0, 0, 0};
  for (size_t w = 1; w <= workers; ++w) {
    for (size_t end = 0; end < cuts; ++end) {
      for (size_t begin = 0; begin <= end; ++begin) {
        const Best& before = table[w - 1][begin];
        if (before.from < 0 || (nobody_idle && begin == end)) continue;
        const double time = cost(bound(begin), bound(end)) / weights[w - 1];
        const double count = static_cast<double>(end - begin) / weights[w - 1];
        const Best candidate = {std::max(before.worst, time), std::max(before.worst_count, count),
                                before.squares + count * count, static_cast<int64_t>(begin)};
        Best& best = table[w][end];
        // Later starts win ties: that leaves more to the workers before.
        if (candidate.better_than(best) || !best.better_than(candidate)) best = candidate;
      }
    }
  }
  std::vector<int64_t> bounds(workers + 1, 0);
  size_t cut = cuts - 1;
  for (size_t w = workers; w > 0; --w) {
    COX_CHECK(table[w][cut].from >= 0, "there is an item for every worker");
    bounds[w] = bound(cut);
    cut = static_cast<size_t>(table[w][cut].from);
  }
  return bounds;
}

}  // namespace coxswain::weights

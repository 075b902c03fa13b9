// The best weighted fit of x by `step * code - minimum` with integer codes 0..most, minimum >= 0:
// what a 32-column piece of Q4_K and Q5_K can express before its scale and minimum are rounded to 6
// bits.
#pragma once
#include <cstdint>

#include "quantize/lanes.h"

namespace coxswain::quantize {

inline constexpr int kPiece = 32;  // columns that share one scale and one minimum

struct AffineFit {
  float step, minimum;
};

// The weighted sums over a piece that every least-squares step needs; q are the codes.
struct AffineSums {
  double q, qq, xq;  // sum of w q, w q q, w x q
};

class AffinePiece {
 public:
  // Weights: |x| + root mean square of x, so that large values count more without small ones being
  // lost.
  AffinePiece(const float* x, int most);

  // Searches steps around (high - low) / most, then alternates between codes and their best fit.
  AffineFit best_fit() const;
  // Codes nearest to x under `fit`; returns their sums.
  AffineSums code(const AffineFit& fit, float* codes) const;
  // Weighted squared error of codes with these sums.
  double error(const AffineSums& sums, const AffineFit& fit) const;
  // The minimum that suits codes with these sums best for a fixed step.
  float best_minimum(const AffineSums& sums, float step) const;

  double weight() const { return w_; }        // sum of w
  double weighted_sum() const { return x_; }  // sum of w x

 private:
  bool solve(const AffineSums& sums, AffineFit& fit) const;

  Lanes value_[kPiece / kLanes];
  Lanes weight_[kPiece / kLanes];
  int most_;
  float low_, high_;
  double w_, x_, xx_;
};

}  // namespace coxswain::quantize

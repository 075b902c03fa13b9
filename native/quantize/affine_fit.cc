// Formulas: weighted linear regression of x on the codes, whose normal equations have two unknowns.
#include "quantize/affine_fit.h"

#include <cmath>

namespace coxswain::quantize {
namespace {

constexpr int kVectors = kPiece / kLanes;
constexpr int kTrials = 17;  // ranges stretched by -1 .. 1 codes
constexpr int kRounds = 4;   // of coding and refitting; most pieces stand still after two
// Below this a piece is one value: the f16 scales could not tell its codes apart.
constexpr float kFlat = 1e-20f;

}  // namespace

AffinePiece::AffinePiece(const float* x, int most) : most_(most), low_(0.0f), high_(x[0]) {
  Lanes squares = spread(0.0f);
  for (int v = 0; v < kVectors; ++v) {
    value_[v] = load(x + v * kLanes);
    squares += value_[v] * value_[v];
  }
  for (int i = 0; i < kPiece; ++i) {
    low_ = x[i] < low_ ? x[i] : low_;
    high_ = x[i] > high_ ? x[i] : high_;
  }
  const Lanes floor = spread(std::sqrt(sum_of(squares) / kPiece));
  Lanes w = spread(0.0f);
  Lanes wx = spread(0.0f);
  Lanes wxx = spread(0.0f);
  for (int v = 0; v < kVectors; ++v) {
    const Lanes magnitude = value_[v] < 0.0f ? -value_[v] : value_[v];
    weight_[v] = floor + magnitude;
    const Lanes weighted = weight_[v] * value_[v];
    w += weight_[v];
    wx += weighted;
    wxx += weighted * value_[v];
  }
  w_ = static_cast<double>(sum_of(w));
  x_ = static_cast<double>(sum_of(wx));
  xx_ = static_cast<double>(sum_of(wxx));
}

AffineSums AffinePiece::code(const AffineFit& fit, float* codes) const {
  const float inverse = fit.step > 0.0f ? 1.0f / fit.step : 0.0f;
  const Lanes scale = spread(std::isfinite(inverse) ? inverse : 0.0f);
  const Lanes shift = spread(fit.minimum);
  const Lanes most = spread(static_cast<float>(most_));
  const Lanes zero = spread(0.0f);
  Lanes q_sum = zero;
  Lanes qq_sum = zero;
  Lanes xq_sum = zero;
  for (int v = 0; v < kVectors; ++v) {
    const Lanes q = nearest(at_most(at_least((value_[v] + shift) * scale, zero), most));
    const Lanes weighted = weight_[v] * q;
    q_sum += weighted;
    qq_sum += weighted * q;
    xq_sum += weighted * value_[v];
    if (codes != nullptr) store(q, codes + v * kLanes);
  }
  return {static_cast<double>(sum_of(q_sum)), static_cast<double>(sum_of(qq_sum)),
          static_cast<double>(sum_of(xq_sum))};
}

double AffinePiece::error(const AffineSums& sums, const AffineFit& fit) const {
  const double d = static_cast<double>(fit.step);
  const double m = static_cast<double>(fit.minimum);
  return xx_ - 2.0 * d * sums.xq + 2.0 * m * x_ + d * d * sums.qq - 2.0 * d * m * sums.q +
         m * m * w_;
}

float AffinePiece::best_minimum(const AffineSums& sums, float step) const {
  if (w_ <= 0.0) return 0.0f;
  const double minimum = (static_cast<double>(step) * sums.q - x_) / w_;
  return minimum > 0.0 ? static_cast<float>(minimum) : 0.0f;
}

// False when all codes are equal, so that they determine no line.
bool AffinePiece::solve(const AffineSums& sums, AffineFit& fit) const {
  const double determinant = w_ * sums.qq - sums.q * sums.q;
  if (!(determinant > 0.0)) return false;
  double step = (w_ * sums.xq - x_ * sums.q) / determinant;
  double minimum = (sums.q * sums.xq - sums.qq * x_) / determinant;
  if (minimum < 0.0) {
    minimum = 0.0;
    step = sums.xq / sums.qq;
  }
  fit = {static_cast<float>(step), static_cast<float>(minimum)};
  return fit.step > 0.0f;
}

AffineFit AffinePiece::best_fit() const {
  const float range = high_ - low_;
  if (!(range > kFlat)) return {0.0f, -low_};
  AffineFit best{range / static_cast<float>(most_), -low_};
  double best_error = error(code(best, nullptr), best);
  for (int trial = 0; trial < kTrials; ++trial) {
    const float stretch = 0.125f * static_cast<float>(trial - kTrials / 2);
    const AffineFit grid{range / (static_cast<float>(most_) + stretch), -low_};
    const AffineSums sums = code(grid, nullptr);
    AffineFit fit;
    if (!solve(sums, fit)) continue;
    const double trial_error = error(sums, fit);
    if (trial_error < best_error) {
      best = fit;
      best_error = trial_error;
    }
  }
  for (int round = 0; round < kRounds; ++round) {
    const AffineSums sums = code(best, nullptr);
    AffineFit fit;
    if (!solve(sums, fit)) break;
    const double round_error = error(sums, fit);
    if (!(round_error < best_error)) break;
    best = fit;
    best_error = round_error;
  }
  return best;
}

}  // namespace coxswain::quantize

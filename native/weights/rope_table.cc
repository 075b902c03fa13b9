// RoPE frequencies: theta_i = base^(-2i/n_rot) / divisor_i, then the file's
// scaling. Computed with exact_math, since all ranks must turn by the same bits.
#include <cmath>
#include <cstring>

#include "base/exact_math.h"
#include "weights/model_keys.h"
#include "weights/model_shape.h"

namespace coxswain::weights {
namespace {

// Positions stay below the context, and exact_sincos takes angles below 2^31.
constexpr double kMaxAngle = 0x1p30;
constexpr double kTwoPi = 6.283185307179586476925;

std::vector<double> read_divisors(const ModelShape& shape, const GgufFile& file) {
  const size_t count = static_cast<size_t>(shape.n_rot / 2);
  std::vector<double> divisors(count, 1.0);
  if (shape.architecture != "llama") return divisors;
  const TensorInfo* tensor = file.find_tensor("rope_freqs.weight");
  if (tensor == nullptr) return divisors;
  for (size_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, tensor->data + i * sizeof value, sizeof value);
    if (!std::isfinite(value) || !(value > 0)) {
      model_invalid("element " + std::to_string(i) + " of tensor \"rope_freqs.weight\" is not a " +
                    "positive number");
    }
    divisors[i] = static_cast<double>(value);
  }
  return divisors;
}

// YaRN keeps the fast pairs, interpolates the slow ones and mixes between: 1 for fast, 0 for slow.
class YarnRamp {
 public:
  explicit YarnRamp(const ModelShape& shape) {
    const double n = static_cast<double>(shape.n_rot);
    // The pair that makes `turns` turns over the original context.
    const auto pair_of = [&](double turns) {
      return n * exact_log(shape.rope_original_context / (kTwoPi * turns)) /
             (2 * exact_log(shape.rope_base));
    };
    low_ = std::fmax(0, std::floor(pair_of(shape.yarn_beta_fast)));
    high_ = std::fmin(n - 1, std::ceil(pair_of(shape.yarn_beta_slow)));
  }
  double at(double pair) const {
    const double slope = (pair - low_) / std::fmax(0.001, high_ - low_);
    return 1 - std::fmin(1, std::fmax(0, slope));
  }

 private:
  double low_, high_;
};

// 0.1 m ln s + 1: how much longer contexts flatten attention.
double length_correction(double factor, double m) {
  return factor <= 1 ? 1 : 0.1 * m * exact_log(factor) + 1;
}

double yarn_magnitude(const ModelShape& shape) {
  if (shape.yarn_ext_factor == 0) return 1;
  // The key holds 0.1 times the multiplier of all dimensions.
  const double all = shape.yarn_log_multiplier / 0.1;
  const double magnitude = length_correction(shape.rope_factor, 1);
  return all == 0 ? magnitude : magnitude / length_correction(shape.rope_factor, all);
}

}  // namespace

RopeTable make_rope_table(const ModelShape& shape, const GgufFile& file) {
  const std::vector<double> divisors = read_divisors(shape, file);
  RopeTable table{{}, shape.rope_attn_factor};
  const bool yarn = shape.rope_scaling == RopeScaling::kYarn;
  if (yarn) table.magnitude *= yarn_magnitude(shape);
  const YarnRamp ramp(shape);
  const double scale = shape.rope_scaling == RopeScaling::kNone ? 1 : 1 / shape.rope_factor;
  for (size_t i = 0; i < divisors.size(); ++i) {
    const double pair = static_cast<double>(i);
    const double theta =
        exact_pow(shape.rope_base, -2 * pair / static_cast<double>(shape.n_rot)) / divisors[i];
    const double keep = yarn ? ramp.at(pair) * shape.yarn_ext_factor : 0;
    const double frequency = theta * scale * (1 - keep) + theta * keep;
    if (!(frequency * static_cast<double>(shape.context) < kMaxAngle)) {
      model_invalid("RoPE pair " + std::to_string(i) + " turns too fast: its frequency is " +
                    std::to_string(frequency));
    }
    table.frequency.push_back(frequency);
  }
  return table;
}

}  // namespace coxswain::weights

#include "engine/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace coxswain::engine {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr size_t kTopKFromCandidates = 256;  // above, the whole slice travels instead
constexpr size_t kFirstCandidates = 64;
constexpr int64_t kScan = 256;  // logits whose maximum is looked at together

bool penalises(const SamplerParams& params) {
  return !params.bias.empty() || params.repetition != 1.0f || params.presence != 0.0f ||
         params.frequency != 0.0f;
}

float maximum(const float* x, int64_t n) {
  constexpr int64_t kLanes = 16;
  std::array<float, kLanes> lanes;
  lanes.fill(kMinusInfinity);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const size_t l = static_cast<size_t>(lane);
      lanes[l] = x[i + lane] > lanes[l] ? x[i + lane] : lanes[l];
    }
  }
  float best = kMinusInfinity;
  for (; i < n; ++i) best = x[i] > best ? x[i] : best;
  for (const float lane : lanes) best = lane > best ? lane : best;
  return best;
}

// The candidates that top-p and min-p leave of `ordered` (weights relative to the first).
class Cut {
 public:
  Cut(const SamplerParams& params, double total)
      : params_(params), limit_(static_cast<double>(params.top_p) * total) {}
  // False when this candidate and all later ones are out.
  bool take(float weight) {
    if (full_ || (count_ > 0 && weight < params_.min_p)) return false;
    ++count_;
    sum_ += static_cast<double>(weight);
    if (params_.top_p < 1 && sum_ >= limit_) full_ = true;
    return true;
  }
  size_t count() const { return count_; }
  double sum() const { return sum_; }

 private:
  const SamplerParams& params_;
  double limit_;
  double sum_ = 0;
  size_t count_ = 0;
  bool full_ = false;
};

}  // namespace

void top_candidates(std::span<const float> logits, uint32_t first_id, size_t count,
                    std::vector<Candidate>& out) {
  out.clear();
  count = std::min(count, logits.size());
  if (count == 0) return;
  // A heap of the best so far, worst on top; whole stretches below the worst are skipped.
  const int64_t n = static_cast<int64_t>(logits.size());
  for (int64_t begin = 0; begin < n; begin += kScan) {
    const int64_t end = std::min(n, begin + kScan);
    if (out.size() == count && maximum(logits.data() + begin, end - begin) <= out.front().logit)
      continue;
    for (int64_t i = begin; i < end; ++i) {
      const float raw = logits[static_cast<size_t>(i)];
      const Candidate candidate{first_id + static_cast<uint32_t>(i),
                                raw == raw ? raw : kMinusInfinity};
      if (out.size() < count) {
        out.push_back(candidate);
        std::push_heap(out.begin(), out.end());
      } else if (candidate < out.front()) {
        std::pop_heap(out.begin(), out.end());
        out.back() = candidate;
        std::push_heap(out.begin(), out.end());
      }
    }
  }
  std::sort_heap(out.begin(), out.end());
}

double combine_log_sum(std::span<const MaxSum> parts) {
  float max = kMinusInfinity;
  for (const MaxSum& part : parts) max = std::max(max, part.max);
  double sum = 0;
  for (const MaxSum& part : parts) {
    if (part.sum > 0) {
      sum +=
          static_cast<double>(part.sum) * static_cast<double>(kernels::exact_exp(part.max - max));
    }
  }
  return static_cast<double>(max) + kernels::exact_log(sum);
}

double keyed_uniform(uint64_t seed, uint32_t choice, uint64_t position, Purpose purpose) {
  std::array<uint32_t, 4> counter{static_cast<uint32_t>(position),
                                  static_cast<uint32_t>(position >> 32), choice,
                                  static_cast<uint32_t>(purpose)};
  uint32_t key0 = static_cast<uint32_t>(seed);
  uint32_t key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return static_cast<double>(counter[0]) * 0x1p-32;
}

size_t candidates_needed(const SamplerParams& params) {
  if (penalises(params)) return 0;
  if (params.temperature == 0) return 1;
  return params.top_k <= kTopKFromCandidates ? params.top_k : 0;  // top_k 0: no limit
}

Sampler::Sampler(const kernels::Kernels& kernels, int64_t vocab) : kernels_(kernels) {
  adjusted_.resize(static_cast<size_t>(vocab));
  scaled_.resize(static_cast<size_t>(vocab));
  counts_.assign(static_cast<size_t>(vocab), 0);
}

uint32_t Sampler::draw(const SamplerParams& params, std::span<const uint32_t> history,
                       std::span<const Candidate> best, std::span<const float> logits) {
  const double uniform = params.temperature == 0 ? 0
                                                 : keyed_uniform(params.seed, params.choice,
                                                                 history.size(), Purpose::kToken);
  const size_t needed = candidates_needed(params);
  if (needed > 0) {
    if (params.temperature == 0) return best.front().id;
    return draw_from_best(params, best.first(std::min(best.size(), needed)), uniform);
  }
  if (penalises(params)) logits = adjust(params, history, logits);
  if (params.temperature == 0) {
    top_candidates(logits, 0, 1, best_);
    return best_.front().id;
  }
  if (params.top_k > 0) {
    top_candidates(logits, 0, params.top_k, best_);
    return draw_from_best(params, best_, uniform);
  }
  return draw_from_all(params, logits, uniform);
}

std::span<const float> Sampler::adjust(const SamplerParams& params,
                                       std::span<const uint32_t> history,
                                       std::span<const float> logits) {
  std::copy(logits.begin(), logits.end(), adjusted_.begin());
  for (const auto& [id, bias] : params.bias) {
    if (id < adjusted_.size()) adjusted_[id] += bias;
  }
  const size_t prompt = std::min<size_t>(params.prompt_length, history.size());
  if (params.repetition != 1.0f) {
    for (const uint32_t id : history) {
      if (counts_[id]++ > 0) continue;
      float& logit = adjusted_[id];
      logit = logit > 0 ? logit / params.repetition : logit * params.repetition;
    }
    for (const uint32_t id : history) counts_[id] = 0;
  }
  if (params.presence != 0.0f || params.frequency != 0.0f) {
    const std::span<const uint32_t> answer = history.subspan(prompt);
    for (const uint32_t id : answer) ++counts_[id];
    for (const uint32_t id : answer) {
      if (counts_[id] == 0) continue;
      adjusted_[id] -= params.presence + params.frequency * static_cast<float>(counts_[id]);
      counts_[id] = 0;
    }
  }
  return adjusted_;
}

uint32_t Sampler::draw_from_best(const SamplerParams& params, std::span<const Candidate> best,
                                 double uniform) {
  const float top = best.front().logit / params.temperature;
  if (!std::isfinite(top)) return best.front().id;
  const auto weight = [&](const Candidate& candidate) {
    return kernels::exact_exp(candidate.logit / params.temperature - top);
  };
  double total = 0;
  for (const Candidate& candidate : best) total += static_cast<double>(weight(candidate));
  Cut cut(params, total);
  for (const Candidate& candidate : best) {
    if (!cut.take(weight(candidate))) break;
  }
  double left = uniform * cut.sum();
  for (const Candidate& candidate : best.first(cut.count())) {
    left -= static_cast<double>(weight(candidate));
    if (left < 0) return candidate.id;
  }
  return best[cut.count() - 1].id;
}

uint32_t Sampler::draw_from_all(const SamplerParams& params, std::span<const float> logits,
                                double uniform) {
  for (size_t i = 0; i < logits.size(); ++i) {
    const float scaled = logits[i] / params.temperature;
    scaled_[i] = scaled == scaled ? scaled : kMinusInfinity;
  }
  MaxSum whole;
  kernels_.max_sum_exp(scaled_.data(), static_cast<int64_t>(scaled_.size()), &whole.max,
                       &whole.sum);
  // A temperature so small that logits overflow leaves nothing to draw, and no order in scaled_.
  if (!std::isfinite(whole.max)) {
    top_candidates(logits, 0, 1, best_);
    return best_.front().id;
  }
  const double total = static_cast<double>(whole.sum);
  const bool cuts = params.top_p < 1 || params.min_p > 0;
  // Most draws end among the first candidates; only a flat distribution sorts more of the
  // vocabulary.
  for (size_t count = kFirstCandidates;; count *= 8) {
    top_candidates(scaled_, 0, count, best_);
    const bool all = best_.size() == scaled_.size();
    Cut cut(params, total);
    double left = uniform * total;
    bool ended = false;
    for (const Candidate& candidate : best_) {
      const float weight = kernels::exact_exp(candidate.logit - whole.max);
      if (!cut.take(weight)) {
        ended = true;
        break;
      }
      left -= static_cast<double>(weight);
      if (!cuts && left < 0) return candidate.id;
    }
    if (!ended && !all) continue;
    if (!cuts) return best_.back().id;
    left = uniform * cut.sum();
    for (size_t i = 0; i < cut.count(); ++i) {
      left -= static_cast<double>(kernels::exact_exp(best_[i].logit - whole.max));
      if (left < 0) return best_[i].id;
    }
    return best_[cut.count() - 1].id;
  }
}

}  // namespace coxswain::engine

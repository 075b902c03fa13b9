// The sampler: order of candidates, each restriction, penalties, and draws that are a pure
// function.
#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "check.h"

using namespace coxswain;
using namespace coxswain::engine;

namespace {

constexpr size_t kVocab = 1000;
const kernels::Kernels& scalar() { return kernels::kernels_for(kernels::Isa::kScalar); }

std::vector<float> random_logits(uint32_t seed, float spread = 4) {
  std::mt19937 random(seed);
  std::vector<float> logits(kVocab);
  for (float& logit : logits) {
    logit = spread * (static_cast<float>(random() % 20001) / 10000.0f - 1.0f);
  }
  return logits;
}

std::vector<Candidate> sorted(const std::vector<float>& logits) {
  std::vector<Candidate> all;
  for (size_t id = 0; id < logits.size(); ++id)
    all.push_back({static_cast<uint32_t>(id), logits[id]});
  std::sort(all.begin(), all.end());
  return all;
}

bool same(const std::vector<Candidate>& a, const std::vector<Candidate>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Candidate& x, const Candidate& y) { return x.id == y.id; });
}

void finds_the_best_in_order() {
  std::vector<float> logits = random_logits(1);
  for (size_t i = 0; i < kVocab; i += 3) logits[i] = std::round(logits[i]);  // many equal ones
  const std::vector<Candidate> all = sorted(logits);
  std::vector<Candidate> best;
  for (const size_t count :
       {size_t{1}, size_t{2}, size_t{40}, size_t{999}, size_t{1000}, size_t{5000}}) {
    top_candidates(logits, 0, count, best);
    CHECK(same(best, {all.begin(), all.begin() + static_cast<int64_t>(std::min(count, kVocab))}));
  }
  top_candidates(std::span(logits).subspan(100, 50), 100, 1, best);
  CHECK(best[0].id >= 100 && best[0].id < 150);
}

void treats_nan_as_the_worst() {
  std::vector<float> logits(kVocab, std::numeric_limits<float>::quiet_NaN());
  logits[77] = -5;
  std::vector<Candidate> best;
  top_candidates(logits, 0, 3, best);
  CHECK(best[0].id == 77 && best[1].id == 0);
  Sampler sampler(scalar(), kVocab);
  SamplerParams params;
  CHECK(sampler.draw(params, {}, best, logits) == 77);
  params.temperature = 1;
  CHECK(sampler.draw(params, {}, {}, logits) == 77);
}

uint32_t draw(const SamplerParams& params, const std::vector<float>& logits,
              const std::vector<uint32_t>& history) {
  Sampler sampler(scalar(), kVocab);
  std::vector<Candidate> best;
  const size_t needed = candidates_needed(params);
  if (needed > 0) top_candidates(logits, 0, needed, best);
  return sampler.draw(params, history, best, logits);
}

void draws_the_same_from_candidates_and_from_all() {
  const std::vector<float> logits = random_logits(3);
  // A bias of zero on one token forces the path over the whole vocabulary.
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SamplerParams params;
    params.temperature = 0.8f;
    params.top_k = 1 + seed % 60;
    params.top_p = seed % 2 == 0 ? 0.9f : 1.0f;
    params.seed = seed;
    SamplerParams whole = params;
    whole.bias = {{5, 0.0f}};
    CHECK(candidates_needed(params) == params.top_k && candidates_needed(whole) == 0);
    CHECK(draw(params, logits, {1, 2, 3}) == draw(whole, logits, {1, 2, 3}));
  }
}

void keeps_to_top_k_top_p_min_p() {
  const std::vector<float> logits = random_logits(4, 2);
  const std::vector<Candidate> all = sorted(logits);
  std::vector<double> probability;
  double total = 0;
  for (const Candidate& candidate : all) total += std::exp(static_cast<double>(candidate.logit));
  for (const Candidate& candidate : all) {
    probability.push_back(std::exp(static_cast<double>(candidate.logit)) / total);
  }
  const auto rank_of = [&](uint32_t id) {
    return static_cast<size_t>(
        std::find_if(all.begin(), all.end(), [id](const Candidate& c) { return c.id == id; }) -
        all.begin());
  };
  size_t top_p_count = 0;
  for (double sum = 0; sum < 0.5; ++top_p_count) sum += probability[top_p_count];
  size_t min_p_count = 0;
  while (probability[min_p_count] >= 0.3 * probability[0]) ++min_p_count;
  size_t deepest_p = 0;
  size_t deepest_min = 0;
  for (uint32_t position = 0; position < 3000; ++position) {
    SamplerParams params;
    params.temperature = 1;
    params.seed = 99;
    const std::vector<uint32_t> history(position % 500, 1);
    params.choice = position / 500;
    params.top_k = 3;
    CHECK(rank_of(draw(params, logits, history)) < 3);
    params.top_k = 0;
    params.top_p = 0.5f;
    deepest_p = std::max(deepest_p, rank_of(draw(params, logits, history)));
    params.top_p = 1;
    params.min_p = 0.3f;
    deepest_min = std::max(deepest_min, rank_of(draw(params, logits, history)));
  }
  CHECK(deepest_p < top_p_count && deepest_p > top_p_count / 2);
  CHECK(deepest_min <= min_p_count && deepest_min > min_p_count / 2);
}

// The logits overflow when they are divided by it, with and without a limit on candidates.
void tiny_temperature_is_greedy() {
  std::vector<float> logits(kVocab, 20);
  logits[77] = 21;
  SamplerParams params;
  params.temperature = 1e-38f;
  CHECK(draw(params, logits, {}) == 77);
  params.top_k = 5;
  CHECK(draw(params, logits, {}) == 77);
}

void draws_by_probability() {
  std::vector<float> logits(kVocab, -30);
  logits[10] = std::log(0.7f);
  logits[20] = std::log(0.2f);
  logits[30] = std::log(0.1f);
  int counts[3] = {0, 0, 0};
  constexpr int kDraws = 20000;
  Sampler sampler(scalar(), kVocab);
  for (int i = 0; i < kDraws; ++i) {
    SamplerParams params;
    params.temperature = 1;
    params.seed = static_cast<uint64_t>(i);
    const uint32_t id = sampler.draw(params, {}, {}, logits);
    if (id == 10 || id == 20 || id == 30) ++counts[id / 10 - 1];
  }
  CHECK(std::abs(counts[0] - 14000) < 400);
  CHECK(std::abs(counts[1] - 4000) < 300);
  CHECK(std::abs(counts[2] - 2000) < 250);
}

void applies_penalties_and_bias() {
  std::vector<float> logits(kVocab, 0);
  logits[1] = 4;
  logits[2] = 3;
  logits[3] = 2.5f;
  SamplerParams params;
  CHECK(draw(params, logits, {1}) == 1);
  params.repetition = 2;  // every token so far, prompt included: 4 -> 2
  params.prompt_length = 1;
  CHECK(draw(params, logits, {1}) == 2);
  params.repetition = 1;
  params.presence = 1.2f;  // tokens after the prompt only
  CHECK(draw(params, logits, {1}) == 1);
  CHECK(draw(params, logits, {0, 1}) == 2);
  params.presence = 0;
  params.frequency = 0.6f;
  CHECK(draw(params, logits, {0, 1}) == 1);
  CHECK(draw(params, logits, {0, 1, 1}) == 2);
  params.frequency = 0;
  params.bias = {{1, -100.0f}, {2, -100.0f}, {5000, 100.0f}};
  CHECK(draw(params, logits, {0}) == 3);
  params.bias = {{900, 50.0f}};
  CHECK(draw(params, logits, {0}) == 900);
  // Penalties leave no trace in the next draw.
  Sampler sampler(scalar(), kVocab);
  SamplerParams heavy;
  heavy.repetition = 3;
  const std::vector<uint32_t> history{1, 1, 2};
  const uint32_t first = sampler.draw(heavy, history, {}, logits);
  CHECK(sampler.draw(heavy, history, {}, logits) == first);
  heavy.frequency = 1;
  const uint32_t second = sampler.draw(heavy, history, {}, logits);
  CHECK(sampler.draw(heavy, history, {}, logits) == second);
}

void draws_depend_on_seed_choice_position() {
  // Known answer of Philox 4x32-10 for key 0 and counter 0.
  CHECK(keyed_uniform(0, 0, 0, static_cast<Purpose>(0)) == 0x6627e8d5 * 0x1p-32);
  const double base = keyed_uniform(1, 2, 3, Purpose::kToken);
  CHECK(base == keyed_uniform(1, 2, 3, Purpose::kToken));
  CHECK(base != keyed_uniform(2, 2, 3, Purpose::kToken));
  CHECK(base != keyed_uniform(uint64_t{1} << 40, 2, 3, Purpose::kToken));
  CHECK(base != keyed_uniform(1, 3, 3, Purpose::kToken));
  CHECK(base != keyed_uniform(1, 2, 4, Purpose::kToken));
  double mean = 0;
  for (uint64_t position = 0; position < 10000; ++position) {
    const double uniform = keyed_uniform(5, 0, position, Purpose::kToken);
    CHECK(uniform >= 0 && uniform < 1);
    mean += uniform / 10000;
  }
  CHECK(std::abs(mean - 0.5) < 0.02);
}

void combines_sums_of_slices() {
  const std::vector<float> logits = random_logits(8);
  MaxSum whole;
  scalar().max_sum_exp(logits.data(), kVocab, &whole.max, &whole.sum);
  std::vector<MaxSum> parts(3);
  const size_t cuts[4] = {0, 100, 101, kVocab};
  for (size_t i = 0; i < 3; ++i) {
    scalar().max_sum_exp(logits.data() + cuts[i], static_cast<int64_t>(cuts[i + 1] - cuts[i]),
                         &parts[i].max, &parts[i].sum);
  }
  const double one = combine_log_sum(std::span(&whole, 1));
  CHECK(std::abs(one - combine_log_sum(parts)) < 1e-5);
  double exact = 0;
  for (const float logit : logits) exact += std::exp(static_cast<double>(logit));
  CHECK(std::abs(one - std::log(exact)) < 1e-5);
}

}  // namespace

int main() {
  finds_the_best_in_order();
  treats_nan_as_the_worst();
  draws_the_same_from_candidates_and_from_all();
  keeps_to_top_k_top_p_min_p();
  tiny_temperature_is_greedy();
  draws_by_probability();
  applies_penalties_and_bias();
  draws_depend_on_seed_choice_position();
  combines_sums_of_slices();
  return coxswain::testing::finish("engine_sampler_test");
}

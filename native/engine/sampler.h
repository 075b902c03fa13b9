// Sampling of one token: a pure function of (parameters, token ids, position, logits).
//
// Order: logit bias, repetition penalty (every token so far), presence and frequency penalties
// (tokens after the prompt), temperature, top-k, top-p, min-p, draw. Candidates are ordered by
// (logit descending, id ascending); NaN counts as minus infinity. The random number is a function
// of (seed, choice, position, purpose) alone, so fork, truncate, replay and rank loss cannot change
// it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/step_record.h"
#include "kernels/kernels.h"

namespace coxswain::engine {

struct Candidate {
  uint32_t id;
  float logit;
};
inline bool operator<(const Candidate& a, const Candidate& b) {  // true: a comes first
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// The `count` best of logits[0..n), whose first id is `first_id`, in order. Replaces `out`.
void top_candidates(std::span<const float> logits, uint32_t first_id, size_t count,
                    std::vector<Candidate>& out);

// Partial maximum and sum of exp(x - max) of a slice of the vocabulary.
struct MaxSum {
  float max = 0, sum = 0;
};
// log(sum of exp) over the parts, combined in the order given.
double combine_log_sum(std::span<const MaxSum> parts);

// Uniform in [0, 1) with 32 bits. Philox 4x32-10 keyed by the seed (Salmon et al., SC 2011).
enum class Purpose : uint32_t { kToken = 1 };
double keyed_uniform(uint64_t seed, uint32_t choice, uint64_t position, Purpose purpose);

// How much of the logits a draw needs: 0 = all of them, else that many best candidates.
size_t candidates_needed(const SamplerParams& params);

class Sampler {
 public:
  Sampler(const kernels::Kernels& kernels, int64_t vocab);

  // The token for `position`, after history[0..position). `best` holds at least candidates_needed()
  // candidates of the raw logits (or all there are), or `logits` the whole vocabulary.
  uint32_t draw(const SamplerParams& params, std::span<const uint32_t> history,
                std::span<const Candidate> best, std::span<const float> logits);

 private:
  std::span<const float> adjust(const SamplerParams& params, std::span<const uint32_t> history,
                                std::span<const float> logits);
  uint32_t draw_from_best(const SamplerParams& params, std::span<const Candidate> best,
                          double uniform);
  uint32_t draw_from_all(const SamplerParams& params, std::span<const float> logits,
                         double uniform);

  const kernels::Kernels& kernels_;
  std::vector<float> adjusted_, scaled_;
  std::vector<uint32_t> counts_;
  std::vector<Candidate> best_;
};

}  // namespace coxswain::engine

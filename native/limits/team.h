// Threads that do the same work at the same time, timed from the first start to the last end.
// Owns its threads for the length of one call.
#pragma once
#include <cstdint>
#include <functional>

namespace coxswain::limits {

// Runs `work(thread)` on `threads` threads, `rounds` times, all starting each round together, after
// `prepare(thread)` on the same thread. Nanoseconds of the fastest round.
int64_t fastest_round(int threads, int rounds, const std::function<void(int)>& prepare,
                      const std::function<void(int)>& work);

}  // namespace coxswain::limits

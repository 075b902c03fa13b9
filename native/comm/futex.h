// Sleeping on words: the seam between shared memory links and the operating system. On Linux a
// futex; elsewhere short sleeps, so that waking needs no call at all.
#pragma once
#include <atomic>
#include <cstdint>
#include <span>

#include "comm/link.h"

namespace coxswain::comm {

// Sleeps until one of the handles' words differs from its value or was woken, at most timeout_ns.
// May return early. Every handle has a word.
void sleep_on_words(std::span<const SleepHandle> handles, int64_t timeout_ns);
// Wakes the one thread, of whatever process, that sleeps on the word.
void wake_word(std::atomic<uint32_t>& word);

}  // namespace coxswain::comm

// The futex calls of Linux, and naps where there are none. futex_waitv sleeps on several words;
// kernels and sandboxes without it are served by short sleeps on the first word.
#include "comm/futex.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <string>

#include "base/error.h"

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace coxswain::comm {

#ifdef __linux__

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

namespace {

// futex_waitv is younger than the headers of some systems; its number is the same on all.
constexpr long kFutexWaitv = 449;
struct WaitvEntry {
  uint64_t value, address;
  uint32_t flags, reserved;
};
constexpr uint32_t kFutex32 = 2;
constexpr size_t kWaitvMax = 64;
// Where the kernel cannot sleep on several words, the first is slept on for this long at a time.
constexpr int64_t kSliceNs = 500'000;

void sleep_on_word(const SleepHandle& handle, int64_t timeout_ns) {
  const timespec time{static_cast<time_t>(timeout_ns / 1'000'000'000),
                      static_cast<long>(timeout_ns % 1'000'000'000)};
  syscall(SYS_futex, handle.word, FUTEX_WAIT, handle.value, &time, nullptr, 0);
}

}  // namespace

void sleep_on_words(std::span<const SleepHandle> handles, int64_t timeout_ns) {
  if (handles.size() == 1) return sleep_on_word(handles[0], timeout_ns);
  const size_t count = handles.size();
  if (count > kWaitvMax) {
    throw EngineError("LINK_PROTOCOL", "a rank waits for at most " + std::to_string(kWaitvMax) +
                                           " peers at once over shared memory, not for " +
                                           std::to_string(count));
  }
  std::array<WaitvEntry, kWaitvMax> entries{};
  for (size_t i = 0; i < count; ++i) {
    entries[i] = {handles[i].value, reinterpret_cast<uint64_t>(handles[i].word), kFutex32, 0};
  }
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  const int64_t ns = until.tv_nsec + timeout_ns;
  until.tv_sec += static_cast<time_t>(ns / 1'000'000'000);
  until.tv_nsec = static_cast<long>(ns % 1'000'000'000);
  const long result = syscall(kFutexWaitv, entries.data(), count, 0, &until, CLOCK_MONOTONIC);
  // Interrupted, timed out and "the value differs already" need nothing; anything else means that
  // this kernel or its sandbox lacks the call.
  if (result < 0 && errno != EAGAIN && errno != ETIMEDOUT && errno != EINTR) {
    sleep_on_word(handles[0], std::min(timeout_ns, kSliceNs));
  }
}

void wake_word(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

#else

void sleep_on_words(std::span<const SleepHandle> handles, int64_t timeout_ns) {
  constexpr int64_t kNapNs = 50'000;
  for (int64_t slept = 0; slept < timeout_ns; slept += kNapNs) {
    for (const SleepHandle& handle : handles) {
      if (handle.word->load() != handle.value) return;
    }
    const timespec time{0, kNapNs};
    nanosleep(&time, nullptr);
  }
}

void wake_word(std::atomic<uint32_t>&) {}

#endif

}  // namespace coxswain::comm

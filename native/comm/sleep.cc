// Sleeping on links of whatever kind: words (shared memory), sockets, bells (queues).
#include <poll.h>

#include <algorithm>
#include <array>
#include <ctime>

#include "comm/bell.h"
#include "comm/futex.h"
#include "comm/wait.h"

namespace coxswain::comm {
namespace {

constexpr size_t kPollMax = 128;
// With kinds mixed, one kind is slept on in slices this short and the others are looked at between.
constexpr int64_t kMixedSliceNs = 500'000;

void sleep_on_sockets(std::span<const SleepHandle> handles, int64_t timeout_ns) {
  std::array<pollfd, kPollMax> entries{};
  size_t count = 0;
  for (const SleepHandle& handle : handles) {
    if (handle.fd < 0 || count == kPollMax) continue;
    entries[count++] = {handle.fd, handle.events, 0};
  }
#ifdef __linux__
  const timespec time{0, static_cast<long>(std::min<int64_t>(timeout_ns, 999'999'999))};
  ppoll(entries.data(), count, &time, nullptr);
#else
  poll(entries.data(), static_cast<nfds_t>(count),
       static_cast<int>((timeout_ns + 999'999) / 1'000'000));
#endif
}

}  // namespace

void sleep_on(std::span<const SleepHandle> handles, int64_t timeout_ns) {
  const auto is_socket = [](const SleepHandle& h) { return h.fd >= 0; };
  const auto is_word = [](const SleepHandle& h) { return h.word != nullptr; };
  if (std::all_of(handles.begin(), handles.end(), is_word)) {
    return sleep_on_words(handles, timeout_ns);
  }
  if (std::all_of(handles.begin(), handles.end(), is_socket)) {
    return sleep_on_sockets(handles, timeout_ns);
  }
  const auto bell = std::find_if(handles.begin(), handles.end(),
                                 [](const SleepHandle& h) { return h.bell != nullptr; });
  if (bell != handles.end()) {
    const bool alone = std::none_of(handles.begin(), handles.end(),
                                    [](const SleepHandle& h) { return h.bell == nullptr; });
    return bell->bell->wait(bell->rings, alone ? timeout_ns : std::min(timeout_ns, kMixedSliceNs));
  }
  sleep_on_sockets(handles, std::min(timeout_ns, kMixedSliceNs));
}

}  // namespace coxswain::comm

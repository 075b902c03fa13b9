// The dialer's side of the handshake.
#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "comm/handshake.h"
#include "comm/rendezvous.h"

namespace coxswain::comm {
namespace {

// The peer may not have been told of the epoch yet; it will be within milliseconds.
constexpr int64_t kFirstPauseNs = 2'000'000;
constexpr int64_t kLongestPauseNs = 100'000'000;

// One attempt: a proved connection, or none and the reason.
Fd dial_once(const DialTarget& target, const Hello& about, const Patience& patience,
             std::string* reason) {
  Fd fd = connect_to(target.host, target.port, patience, reason);
  if (!fd) return fd;
  const Hello mine = make_hello(Role::kDialer, about);
  Hello theirs;
  if (!write_all(fd.get(), std::as_bytes(std::span(&mine, 1)), patience, reason) ||
      !read_all(fd.get(), std::as_writable_bytes(std::span(&theirs, 1)), patience, reason)) {
    return Fd();
  }
  *reason = refusal_of(theirs, mine);
  if (theirs.magic == mine.magic && theirs.version != mine.version) {
    throw EngineError("LINK_PROTOCOL", "rank " + std::to_string(about.to) + " at " + target.host +
                                           ":" + std::to_string(target.port) + ": " + *reason);
  }
  if (!reason->empty()) return Fd();
  const std::vector<std::byte> key = link_key(target.data_key, mine);
  const Proof proof = prove(key, Role::kDialer, mine, theirs);
  Proof answer;
  if (!write_all(fd.get(), proof, patience, reason) ||
      !read_all(fd.get(), answer, patience, reason)) {
    *reason += " (it has another key?)";
    return Fd();
  }
  if (!equal_constant_time(prove(key, Role::kAcceptor, mine, theirs), answer)) {
    *reason = "its proof is wrong";
    return Fd();
  }
  return fd;
}

}  // namespace

Fd dial(const DialTarget& target, const Hello& about, const Patience& patience) {
  const int64_t start = now_ns();
  std::string reason;
  for (int64_t pause = kFirstPauseNs;; pause = std::min(2 * pause, kLongestPauseNs)) {
    const Patience attempt{std::min(patience.deadline_ns, now_ns() + kUnprovenNs), patience.fence};
    std::string failure;
    Fd fd = dial_once(target, about, attempt, &failure);
    if (fd) return fd;
    patience.check_fence();
    // An attempt that the deadline cut short says less than the one before it.
    if (reason.empty() || !patience.over()) reason = failure;
    if (patience.over()) break;
    patience.sleep(pause);
  }
  throw EngineError("LINK_TIMEOUT",
                    "rank " + std::to_string(about.from) + " could not reach rank " +
                        std::to_string(about.to) + " at " + target.host + ":" +
                        std::to_string(target.port) + " within " +
                        std::to_string((now_ns() - start) / 1'000'000) + " ms (epoch " +
                        std::to_string(about.epoch) + "): " + reason);
}

}  // namespace coxswain::comm

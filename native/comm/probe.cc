// The dialogue's frames and its ping-pong. The other side echoes; both end at the same frame.
#include "comm/probe.h"

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "base/error.h"
#include "comm/transfer.h"

namespace coxswain::comm {
namespace {

constexpr size_t kRounds = 33;
// The first rounds fault pages in and wake the peer; the median of the rest is reported.
constexpr size_t kWarmUp = 8;

}  // namespace

void Dialogue::send(Bytes bytes) {
  SendFrame frame(channel_, FrameKind::kProbe, bytes, wait_);
  waiter_.run(frame, wait_);
}

void Dialogue::receive(MutableBytes bytes) {
  ReceiveHeader header(channel_, FrameKind::kProbe, bytes.size(), wait_);
  waiter_.run(header, wait_);
  const uint64_t got = channel_.incoming().payload_bytes;
  if (got != bytes.size()) {
    throw EngineError("LINK_PROTOCOL", "rank " + std::to_string(channel_.peer()) + " sent " +
                                           std::to_string(got) + " bytes where " +
                                           std::to_string(bytes.size()) + " were due " +
                                           describe_place(channel_.incoming().epoch, wait_));
  }
  ReceivePayload payload(channel_, bytes);
  waiter_.run(payload, wait_);
}

RoundTrip Dialogue::ping() {
  std::array<int64_t, kRounds> times{};
  for (uint64_t round = 0; round < kRounds; ++round) {
    const int64_t start = now_ns();
    send_record(round);
    const bool same = receive_record<uint64_t>() == round;
    times[round] = now_ns() - start;
    if (!same) {
      throw EngineError("LINK_PROTOCOL", "rank " + std::to_string(channel_.peer()) +
                                             " echoed other bytes than it was sent " +
                                             describe_place(channel_.incoming().epoch, wait_));
    }
  }
  std::sort(times.begin() + kWarmUp, times.end());
  const auto us = [](int64_t ns) { return static_cast<double>(ns) / 1000.0; };
  return {us(times[kWarmUp]), us(times[kWarmUp + (kRounds - kWarmUp) / 2])};
}

void Dialogue::echo() {
  for (size_t round = 0; round < kRounds; ++round) send_record(receive_record<uint64_t>());
}

}  // namespace coxswain::comm

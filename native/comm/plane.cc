// Turns the calls of the engine into operations on channels, and remembers the first failure.
#include "comm/plane.h"

#include <algorithm>

#include "comm/transfer.h"

namespace coxswain::comm {
namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  throw EngineError("LINK_PROTOCOL", sentence);
}

}  // namespace

LinkedPlane::LinkedPlane(int rank, uint64_t epoch, std::vector<std::unique_ptr<Channel>> channels,
                         std::shared_ptr<std::atomic<bool>> revoked)
    : rank_(rank),
      epoch_(epoch),
      channels_(std::move(channels)),
      revoked_(std::move(revoked)),
      waiter_(rank, epoch, revoked_.get()),
      all_reduce_(channels_.size() + 1) {
  others_.reserve(channels_.size());
}

template <typename Action>
void LinkedPlane::guarded(const Wait& wait, Action action) {
  if (failure_) throw *failure_;
  if (wait.layer > INT16_MAX) refuse("layer " + std::to_string(wait.layer) + " is no layer");
  try {
    action();
  } catch (const EngineError& error) {
    failure_ = error;
    throw;
  }
}

Channel& LinkedPlane::channel_to(int peer, const Wait& wait) {
  for (const auto& channel : channels_) {
    if (channel->peer() == peer) return *channel;
  }
  refuse("rank " + std::to_string(rank_) + " has no link to rank " + std::to_string(peer) + " " +
         describe_place(epoch_, wait));
}

void LinkedPlane::all_reduce(std::span<const int> group, std::span<const double> partials,
                             std::span<float> sum, const Wait& wait) {
  COX_CHECK(partials.size() == sum.size(), "as many sums as partials");
  guarded(wait, [&] {
    others_.clear();
    size_t position = group.size();
    for (size_t i = 0; i < group.size(); ++i) {
      if (i != 0 && group[i] <= group[i - 1]) refuse("a group's ranks must ascend");
      if (group[i] == rank_) {
        position = i;
      } else {
        others_.push_back(&channel_to(group[i], wait));
      }
    }
    if (position == group.size()) {
      refuse("rank " + std::to_string(rank_) + " is not in the group it was to sum with");
    }
    if (others_.empty()) {
      std::transform(partials.begin(), partials.end(), sum.begin(),
                     [](double partial) { return static_cast<float>(partial); });
      return;
    }
    if (sum.empty()) return;
    all_reduce_.begin(others_, position, {partials, sum}, wait);
    waiter_.run(all_reduce_, wait);
    ++collectives_;
  });
}

void LinkedPlane::send(int peer, Bytes bytes, const Wait& wait) {
  guarded(wait, [&] {
    SendFrame frame(channel_to(peer, wait), FrameKind::kMessage, bytes, wait);
    waiter_.run(frame, wait);
  });
}

void LinkedPlane::recv(int peer, MutableBytes bytes, const Wait& wait) {
  guarded(wait, [&] {
    Channel& channel = channel_to(peer, wait);
    ReceiveHeader header(channel, FrameKind::kMessage, bytes.size(), wait);
    waiter_.run(header, wait);
    if (channel.incoming().payload_bytes != bytes.size()) {
      refuse("rank " + std::to_string(peer) + " sent " +
             std::to_string(channel.incoming().payload_bytes) + " bytes where rank " +
             std::to_string(rank_) + " expected " + std::to_string(bytes.size()) + " " +
             describe_place(epoch_, wait));
    }
    ReceivePayload payload(channel, bytes);
    waiter_.run(payload, wait);
  });
}

DataPlane::Counters LinkedPlane::counters() const {
  Counters counters;
  counters.collectives = collectives_;
  counters.wait_ns = waiter_.waited_ns();
  for (const auto& channel : channels_) {
    counters.bytes_sent += channel->bytes_sent();
    counters.bytes_received += channel->bytes_received();
  }
  return counters;
}

}  // namespace coxswain::comm

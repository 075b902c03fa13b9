// The machine of all_reduce: every pump moves what the links take and give, and the reduction
// follows the slowest partial. Addition itself is in sum.cc.
#include "comm/collective.h"

#include <algorithm>

#include "base/error.h"
#include "comm/sum.h"

namespace coxswain::comm {
namespace {

constexpr size_t kPartialBytes = sizeof(double);
constexpr size_t kSumBytes = sizeof(float);

}  // namespace

AllReduce::AllReduce(size_t ranks) {
  peers_.reserve(ranks);
  partials_.reserve(ranks);
}

void AllReduce::begin(std::span<Channel* const> others, size_t position, const Addends& addends,
                      const Wait& wait) {
  const size_t ranks = others.size() + 1;
  position_ = position;
  addends_ = addends;
  wait_ = &wait;
  const size_t count = addends.sum.size();
  scatter_ = addends.partials.size_bytes() > kDirectExchangeBytes;
  reduced_ = 0;
  const auto slice_start = [&](size_t rank) { return scatter_ ? count * rank / ranks : 0; };
  const auto slice_end = [&](size_t rank) { return scatter_ ? count * (rank + 1) / ranks : count; };
  first_ = slice_start(position);
  count_ = slice_end(position) - first_;
  partials_.assign(ranks, nullptr);
  peers_.clear();
  for (size_t i = 0; i < others.size(); ++i) {
    const size_t rank = i < position ? i : i + 1;
    Peer peer{others[i], slice_start(rank), slice_end(rank) - slice_start(rank), false, false, 0};
    const auto partials = addends.partials.subspan(peer.first, peer.count);
    peer.channel->begin_send(FrameKind::kPartial, std::as_bytes(partials), wait);
    peer.channel->begin_receive(FrameKind::kPartial);
    peers_.push_back(peer);
  }
}

Operation::Progress AllReduce::advance() {
  bool moved = false;
  bool done = true;
  for (Peer& peer : peers_) moved |= advance_send(peer);
  for (Peer& peer : peers_) moved |= advance_receive(peer);
  moved |= reduce();
  for (Peer& peer : peers_) {
    // Pieces reduced just now leave at once.
    if (scatter_) moved |= advance_send(peer);
    done = done && send_done(peer) && receive_done(peer);
  }
  if (done && reduced_ == count_) return Progress::kDone;
  return moved ? Progress::kMoved : Progress::kStuck;
}

bool AllReduce::advance_send(Peer& peer) {
  Channel& channel = *peer.channel;
  if (!channel.send_done()) {
    return channel.pump_send(peer.sum_sent ? reduced_ * kSumBytes : peer.count * kPartialBytes);
  }
  if (!scatter_ || peer.sum_sent) return false;
  channel.begin_send(FrameKind::kSum, std::as_bytes(addends_.sum.subspan(first_, count_)), *wait_);
  peer.sum_sent = true;
  return channel.pump_send(reduced_ * kSumBytes);
}

bool AllReduce::advance_receive(Peer& peer) {
  Channel& channel = *peer.channel;
  bool moved = false;
  if (!channel.header_done()) {
    moved = channel.pump_header(*wait_);
    if (!channel.header_done()) return moved;
    expect_bytes(peer, bytes_due(peer));
  }
  if (!peer.sum_due) {
    if (!scatter_ || channel.payload_left() != 0) return moved;  // reduce() takes the partial
    channel.begin_receive(FrameKind::kSum);
    peer.sum_due = true;
    return true;
  }
  const auto region = std::as_writable_bytes(addends_.sum.subspan(peer.first, peer.count));
  const size_t n = channel.read_payload(region.subspan(peer.gathered));
  peer.gathered += n;
  return moved || n != 0;
}

bool AllReduce::reduce() {
  bool moved = false;
  while (reduced_ != count_) {
    size_t ready = count_ - reduced_;
    size_t rank = 0;
    for (const Peer& peer : peers_) {
      if (rank == position_) ++rank;
      if (!peer.channel->header_done()) return moved;
      const Bytes there = peer.channel->peek_payload();
      partials_[rank++] = there.data();
      ready = std::min(ready, there.size() / kPartialBytes);
    }
    if (ready == 0) return moved;
    const size_t at = first_ + reduced_;
    partials_[position_] = std::as_bytes(addends_.partials.subspan(at)).data();
    sum_in_order(addends_.sum.subspan(at, ready), partials_);
    for (const Peer& peer : peers_) peer.channel->consume_payload(ready * kPartialBytes);
    reduced_ += ready;
    moved = true;
  }
  return moved;
}

bool AllReduce::receive_done(const Peer& peer) const {
  const Channel& channel = *peer.channel;
  return peer.sum_due == scatter_ && channel.header_done() && channel.payload_left() == 0;
}

bool AllReduce::send_done(const Peer& peer) const {
  return peer.sum_sent == scatter_ && peer.channel->send_done();
}

void AllReduce::list_pending(std::vector<Pending>& pending) {
  for (const Peer& peer : peers_) {
    Channel& channel = *peer.channel;
    // Bytes that have arrived but wait for another rank's are no reason to accuse this one.
    const size_t arrived = channel.peek_payload().size();
    const bool wants_data = !receive_done(peer) && (peer.sum_due || arrived < kPartialBytes);
    const bool wants_room = !channel.send_done() && (!peer.sum_sent || reduced_ == count_ ||
                                                     channel.payload_sent() < reduced_ * kSumBytes);
    if (wants_data) {
      pending.push_back({&channel, kWantsData | (wants_room ? kWantsRoom : 0u),
                         channel.payload_received() + arrived, bytes_due(peer)});
    } else if (wants_room) {
      pending.push_back({&channel, kWantsRoom, channel.payload_sent(), channel.payload_to_send()});
    }
  }
}

size_t AllReduce::bytes_due(const Peer& peer) const {
  return peer.sum_due ? peer.count * kSumBytes : count_ * kPartialBytes;
}

void AllReduce::expect_bytes(const Peer& peer, size_t bytes) const {
  const FrameHeader& header = peer.channel->incoming();
  if (header.payload_bytes == bytes) return;
  throw EngineError("LINK_PROTOCOL", "rank " + std::to_string(peer.channel->peer()) + " brings " +
                                         std::to_string(header.payload_bytes) +
                                         " bytes to a sum of " + std::to_string(bytes) + " " +
                                         describe_place(header.epoch, *wait_));
}

}  // namespace coxswain::comm

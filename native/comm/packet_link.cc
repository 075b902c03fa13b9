// Cuts the frame stream into packets and joins it again; counts credit in both directions. Packets
// end at a full one or at a frame's end, so a float never straddles two.
#include "comm/packet_link.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace coxswain::comm {

PacketLink::PacketLink(const PacketEnds& ends, std::shared_ptr<PacketInbox> inbox,
                       std::shared_ptr<Bell> bell, Post post)
    : ends_(ends), inbox_(std::move(inbox)), bell_(std::move(bell)), post_(std::move(post)) {
  inbox_->attach(ends_.epoch, bell_);
}

PacketLink::~PacketLink() { inbox_->detach(); }

size_t PacketLink::write_some(std::span<const Bytes> parts) {
  size_t taken = 0;
  take_packets();
  for (Bytes part : parts) {
    while (!part.empty()) {
      if (outgoing_.empty()) outgoing_ = envelope(FrameKind::kPacket, kPacketPayload);
      const size_t room = kPacketPayload + sizeof(FrameHeader) - outgoing_.size();
      const size_t n = std::min({part.size(), room, static_cast<size_t>(granted_ - written_)});
      if (n == 0) return taken;
      outgoing_.insert(outgoing_.end(), part.begin(), part.begin() + static_cast<ptrdiff_t>(n));
      written_ += n;
      taken += n;
      part = part.subspan(n);
      if (n == room) flush();
    }
  }
  return taken;
}

void PacketLink::flush() {
  if (outgoing_.size() <= sizeof(FrameHeader)) return;
  post(std::move(outgoing_));
  outgoing_.clear();
}

std::vector<std::byte> PacketLink::envelope(FrameKind kind, size_t reserve) {
  FrameHeader header;
  header.kind = kind;
  header.epoch = ends_.epoch;
  header.source = static_cast<uint32_t>(ends_.self);
  std::vector<std::byte> packet;
  packet.reserve(sizeof header + reserve);
  const Bytes bytes = std::as_bytes(std::span(&header, 1));
  packet.insert(packet.end(), bytes.begin(), bytes.end());
  return packet;
}

void PacketLink::post(std::vector<std::byte> packet) {
  FrameHeader header;
  std::memcpy(&header, packet.data(), sizeof header);
  // Numbered when it leaves: a credit may overtake a packet that is still being filled.
  header.sequence = next_out_++;
  header.payload_bytes = packet.size() - sizeof header;
  std::memcpy(packet.data(), &header, sizeof header);
  post_(std::move(packet));
}

Bytes PacketLink::peek() {
  if (arrivals_.empty()) take_packets();
  return arrivals_.empty() ? Bytes{} : Bytes(arrivals_.front()).subspan(at_);
}

void PacketLink::take_packets() {
  std::vector<std::byte> packet;
  while (inbox_->take(packet)) open_packet(std::move(packet));
}

void PacketLink::open_packet(std::vector<std::byte> packet) {
  const std::string who =
      "rank " + std::to_string(ends_.self) + " got from rank " + std::to_string(ends_.peer);
  const std::string where = " (epoch " + std::to_string(ends_.epoch) + ")";
  FrameHeader header;
  if (packet.size() < sizeof header) {
    throw EngineError("LINK_PROTOCOL", who + " a packet without a header" + where);
  }
  std::memcpy(&header, packet.data(), sizeof header);
  const size_t payload = packet.size() - sizeof header;
  const bool credit = header.kind == FrameKind::kCredit && payload == sizeof(uint64_t);
  if (header.magic != kFrameMagic || header.payload_bytes != payload ||
      (header.kind != FrameKind::kPacket && !credit)) {
    throw EngineError("LINK_PROTOCOL", who + " bytes that are no packet" + where);
  }
  if (header.source != static_cast<uint32_t>(ends_.peer) || header.sequence != next_in_) {
    throw EngineError("LINK_PROTOCOL", who + " packet " + std::to_string(header.sequence) +
                                           " of rank " + std::to_string(header.source) +
                                           " where packet " + std::to_string(next_in_) +
                                           " was due" + where);
  }
  ++next_in_;
  if (credit) {
    uint64_t total = 0;
    std::memcpy(&total, packet.data() + sizeof header, sizeof total);
    if (total > written_)
      throw EngineError("LINK_PROTOCOL", who + " credit for unsent bytes" + where);
    granted_ = std::max(granted_, total + kPacketWindow);
    return;
  }
  arrived_ += payload;
  if (arrived_ - consumed_ > kPacketWindow) {
    throw EngineError("LINK_PROTOCOL", who + " more bytes than it was granted" + where);
  }
  if (payload != 0) arrivals_.push_back(std::move(packet));
}

void PacketLink::consume(size_t bytes) {
  at_ += bytes;
  consumed_ += bytes;
  if (!arrivals_.empty() && at_ == arrivals_.front().size()) {
    arrivals_.pop_front();
    at_ = sizeof(FrameHeader);
  }
  if (consumed_ - credited_ < kPacketWindow / 4) return;
  credited_ = consumed_;
  std::vector<std::byte> packet = envelope(FrameKind::kCredit, sizeof consumed_);
  const Bytes total = std::as_bytes(std::span(&consumed_, 1));
  packet.insert(packet.end(), total.begin(), total.end());
  post(std::move(packet));
}

SleepHandle PacketLink::arm(uint32_t) {
  SleepHandle handle;
  handle.bell = bell_.get();
  handle.rings = bell_->rings();
  return handle;
}

}  // namespace coxswain::comm

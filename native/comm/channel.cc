// Frames over one link. A frame's padding is skipped when the next header is read, so that no
// receiver waits for bytes that mean nothing.
#include "comm/channel.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace coxswain::comm {
namespace {

constexpr std::array<std::byte, kFrameAlign> kZeros{};

// The part of `bytes` from `from` on, where `from` may lie before or behind it.
Bytes rest_of(Bytes bytes, size_t from) { return bytes.subspan(std::min(from, bytes.size())); }

[[noreturn]] void refuse(const std::string& sentence) {
  throw EngineError("LINK_PROTOCOL", sentence);
}

}  // namespace

std::string describe_place(uint64_t epoch, const Wait& wait) {
  std::string text = "(epoch " + std::to_string(epoch) + ", step " + std::to_string(wait.step);
  if (wait.layer >= 0) text += ", layer " + std::to_string(wait.layer);
  if (*wait.phase != '\0') text += std::string(", ") + wait.phase;
  return text + ")";
}

Channel::Channel(int self, int peer, uint64_t epoch, std::unique_ptr<Link> link)
    : self_(self), peer_(peer), epoch_(epoch), link_(std::move(link)) {}

void Channel::begin_send(FrameKind kind, Bytes payload, const Wait& wait) {
  COX_CHECK(send_done(), "a frame is begun while another is in progress");
  out_.kind = kind;
  out_.layer = static_cast<int16_t>(wait.layer);
  out_.epoch = epoch_;
  out_.step = wait.step;
  out_.sequence = next_out_++;
  out_.payload_bytes = payload.size();
  out_.source = static_cast<uint32_t>(self_);
  out_payload_ = payload;
  sent_ = 0;
  send_total_ = sizeof(FrameHeader) + payload.size() + frame_padding(payload.size());
}

bool Channel::pump_send(size_t available) {
  if (send_done()) return false;
  const size_t header = sizeof(FrameHeader);
  const bool whole = available >= out_payload_.size();
  const Bytes head = std::as_bytes(std::span(&out_, 1));
  const Bytes payload = out_payload_.first(whole ? out_payload_.size() : available);
  const Bytes padding = Bytes(kZeros).first(whole ? frame_padding(out_payload_.size()) : 0);
  const size_t behind_header = sent_ > header ? sent_ - header : 0;
  const std::array<Bytes, 3> parts = {
      rest_of(head, sent_), rest_of(payload, behind_header),
      rest_of(padding, behind_header > payload.size() ? behind_header - payload.size() : 0)};
  const size_t taken = link_->write_some(parts);
  sent_ += taken;
  bytes_sent_ += taken;
  if (send_done()) link_->flush();
  return taken != 0;
}

size_t Channel::payload_sent() const {
  return sent_ <= sizeof(FrameHeader) ? 0
                                      : std::min(sent_ - sizeof(FrameHeader), out_payload_.size());
}

void Channel::begin_receive(FrameKind kind) {
  COX_CHECK(payload_left_ == 0, "a frame is awaited while another is in progress");
  expected_ = kind;
  header_read_ = 0;
}

bool Channel::skip_padding() {
  while (padding_left_ != 0) {
    const size_t n = std::min(link_->peek().size(), padding_left_);
    if (n == 0) return false;
    link_->consume(n);
    padding_left_ -= n;
    bytes_received_ += n;
  }
  return true;
}

bool Channel::pump_header(const Wait& wait) {
  if (!skip_padding()) return false;
  const size_t n =
      link_->read_some(std::as_writable_bytes(std::span(&in_, 1)).subspan(header_read_));
  header_read_ += n;
  bytes_received_ += n;
  if (n != 0 && header_done()) {
    check_header(wait);
    ++next_in_;
    payload_left_ = static_cast<size_t>(in_.payload_bytes);
    padding_left_ = frame_padding(in_.payload_bytes);
  }
  return n != 0;
}

void Channel::check_header(const Wait& wait) const {
  const std::string who =
      "rank " + std::to_string(self_) + " got from rank " + std::to_string(peer_);
  const std::string where = " " + describe_place(epoch_, wait);
  if (in_.magic != kFrameMagic) refuse(who + " bytes that are no frame" + where);
  if (in_.epoch != epoch_) {
    refuse(who + " a frame of epoch " + std::to_string(in_.epoch) + where);
  }
  if (in_.source != static_cast<uint32_t>(peer_)) {
    refuse(who + " a frame that names rank " + std::to_string(in_.source) + " as its sender" +
           where);
  }
  if (in_.sequence != next_in_) {
    refuse(who + " frame " + std::to_string(in_.sequence) + " where frame " +
           std::to_string(next_in_) + " was due" + where);
  }
  if (in_.kind != expected_) {
    refuse(who + " a " + frame_kind_name(in_.kind) + " where a " + frame_kind_name(expected_) +
           " was due" + where);
  }
  const bool collective = expected_ == FrameKind::kPartial || expected_ == FrameKind::kSum;
  if (collective && (in_.step != wait.step || in_.layer != static_cast<int16_t>(wait.layer))) {
    refuse(who + " a " + frame_kind_name(in_.kind) + " of step " + std::to_string(in_.step) +
           ", layer " + std::to_string(in_.layer) + where);
  }
}

size_t Channel::payload_received() const {
  return header_done() ? static_cast<size_t>(in_.payload_bytes) - payload_left_ : 0;
}

Bytes Channel::peek_payload() {
  if (payload_left_ == 0) return {};
  const Bytes there = link_->peek();
  return there.first(std::min(there.size(), payload_left_));
}

void Channel::consume_payload(size_t bytes) {
  link_->consume(bytes);
  payload_left_ -= bytes;
  bytes_received_ += bytes;
}

size_t Channel::read_payload(MutableBytes into) {
  const size_t n = link_->read_some(into.first(std::min(into.size(), payload_left_)));
  payload_left_ -= n;
  bytes_received_ += n;
  return n;
}

}  // namespace coxswain::comm

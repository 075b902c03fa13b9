// Sending and receiving one frame, as steps of the waiter.
#include "comm/transfer.h"

namespace coxswain::comm {

SendFrame::SendFrame(Channel& channel, FrameKind kind, Bytes payload, const Wait& wait)
    : channel_(channel) {
  channel_.begin_send(kind, payload, wait);
}

Operation::Progress SendFrame::advance() {
  if (channel_.send_done()) return Progress::kDone;
  const bool moved = channel_.pump_send(channel_.payload_to_send());
  if (channel_.send_done()) return Progress::kDone;
  return moved ? Progress::kMoved : Progress::kStuck;
}

void SendFrame::list_pending(std::vector<Pending>& pending) {
  pending.push_back({&channel_, kWantsRoom, channel_.payload_sent(), channel_.payload_to_send()});
}

ReceiveHeader::ReceiveHeader(Channel& channel, FrameKind kind, size_t bytes_expected,
                             const Wait& wait)
    : channel_(channel), expected_(bytes_expected), wait_(wait) {
  channel_.begin_receive(kind);
}

Operation::Progress ReceiveHeader::advance() {
  const bool moved = channel_.pump_header(wait_);
  if (channel_.header_done()) return Progress::kDone;
  return moved ? Progress::kMoved : Progress::kStuck;
}

void ReceiveHeader::list_pending(std::vector<Pending>& pending) {
  pending.push_back({&channel_, kWantsData, 0, expected_});
}

Operation::Progress ReceivePayload::advance() {
  const size_t n = channel_.read_payload(into_.subspan(received_));
  received_ += n;
  if (received_ == into_.size()) return Progress::kDone;
  return n != 0 ? Progress::kMoved : Progress::kStuck;
}

void ReceivePayload::list_pending(std::vector<Pending>& pending) {
  pending.push_back({&channel_, kWantsData, received_, into_.size()});
}

Operation::Progress ReceivePadding::advance() {
  return channel_.skip_padding() ? Progress::kDone : Progress::kStuck;
}

void ReceivePadding::list_pending(std::vector<Pending>& pending) {
  pending.push_back({&channel_, kWantsData, 0, 0});
}

}  // namespace coxswain::comm

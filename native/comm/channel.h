// Frames over one link: sequence numbers, header checks, partial progress in both directions.
// A channel belongs to one data plane; one frame per direction is in progress at a time.
#pragma once
#include <memory>
#include <string>

#include "comm/comm.h"
#include "comm/link.h"

namespace coxswain::comm {

// "(epoch 3, step 812, layer 7, attention)": where a rank was when something went wrong.
std::string describe_place(uint64_t epoch, const Wait& wait);

class Channel {
 public:
  Channel(int self, int peer, uint64_t epoch, std::unique_ptr<Link> link);

  int peer() const { return peer_; }
  Link& link() { return *link_; }

  // Starts a frame; `payload` must stay valid until send_done().
  void begin_send(FrameKind kind, Bytes payload, const Wait& wait);
  // Moves what the link takes, but no payload beyond `available`. True when something moved.
  bool pump_send(size_t available);
  bool send_done() const { return sent_ == send_total_; }
  size_t payload_sent() const;
  size_t payload_to_send() const { return out_payload_.size(); }

  // Waits for the header of the next frame; EngineError LINK_PROTOCOL when it is not of this epoch,
  // the next in sequence and of `kind`, or, for collectives, not of the same step and layer.
  void begin_receive(FrameKind kind);
  // Skips the padding of the frame before; true when none is left.
  bool skip_padding();
  // True when something moved. After header_done() the payload is taken with peek/consume or read.
  bool pump_header(const Wait& wait);
  bool header_done() const { return header_read_ == sizeof(FrameHeader); }
  const FrameHeader& incoming() const { return in_; }
  size_t payload_left() const { return payload_left_; }
  size_t payload_received() const;
  Bytes peek_payload();
  void consume_payload(size_t bytes);
  size_t read_payload(MutableBytes into);

  uint64_t bytes_sent() const { return bytes_sent_; }
  uint64_t bytes_received() const { return bytes_received_; }

 private:
  void check_header(const Wait& wait) const;

  const int self_;
  const int peer_;
  const uint64_t epoch_;
  std::unique_ptr<Link> link_;

  FrameHeader out_;
  Bytes out_payload_;
  size_t sent_ = 0;        // bytes of header + payload + padding
  size_t send_total_ = 0;  // equal to sent_ when no frame is in progress
  uint64_t next_out_ = 0;

  FrameKind expected_ = FrameKind::kMessage;
  FrameHeader in_;
  size_t header_read_ = 0;
  size_t payload_left_ = 0;
  size_t padding_left_ = 0;  // of the frame before; skipped when the next header is read
  uint64_t next_in_ = 0;
  uint64_t bytes_sent_ = 0;
  uint64_t bytes_received_ = 0;
};

}  // namespace coxswain::comm

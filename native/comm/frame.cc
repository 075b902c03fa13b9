// Names of the frame kinds and transports, for error messages and reports.
#include "comm/frame.h"

#include "comm/comm.h"

namespace coxswain::comm {

const char* frame_kind_name(FrameKind kind) {
  switch (kind) {
    case FrameKind::kMessage:
      return "message";
    case FrameKind::kPartial:
      return "partial sum";
    case FrameKind::kSum:
      return "reduced slice";
    case FrameKind::kProbe:
      return "probe";
    case FrameKind::kPacket:
      return "packet";
    case FrameKind::kCredit:
      return "credit";
  }
  return "unknown";
}

const char* transport_name(TransportKind kind) {
  switch (kind) {
    case TransportKind::kAuto:
      return "auto";
    case TransportKind::kShm:
      return "shm";
    case TransportKind::kTcp:
      return "tcp";
    case TransportKind::kGrpc:
      return "grpc";
  }
  return "unknown";
}

}  // namespace coxswain::comm

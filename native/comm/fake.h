// Planes in one process, joined by queues of packets, with faults on demand. For tests only; the
// packets, headers and limits are those of the grpc transport.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "comm/comm.h"
#include "comm/frame.h"

namespace coxswain::comm {

struct FakeVerdict {
  enum class Kind { kPass, kDrop, kDuplicate, kClose };
  Kind kind = Kind::kPass;
  int64_t delay_ns = 0;  // the receiver sees the packet, and all behind it, that much later
};
// Asked for every packet, on the sender's thread; may alter the bytes (64 of them are the
// envelope).
using FakeFaults = std::function<FakeVerdict(int from, int to, std::vector<std::byte>& packet)>;

std::vector<std::unique_ptr<DataPlane>> make_fake_planes_with_faults(int count, uint64_t epoch,
                                                                     FakeFaults faults);

}  // namespace coxswain::comm

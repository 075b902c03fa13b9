// Planes in one process, joined by queues of packets, with faults on demand: a hook decides the
// fate of each packet on the sender's thread. The packets, headers and limits are those of the grpc
// transport.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "comm/comm.h"
#include "comm/packet_link.h"
#include "comm/plane.h"

namespace coxswain::comm {

struct FakeVerdict {
  enum class Kind { kPass, kDrop, kDuplicate, kClose };
  Kind kind = Kind::kPass;
  int64_t delay_ns = 0;  // the receiver sees the packet, and all behind it, that much later
};
// Asked for every packet, on the sender's thread; may alter the bytes (64 of them are the
// envelope).
using FakeFaults = std::function<FakeVerdict(int from, int to, std::vector<std::byte>& packet)>;

// Inboxes of all ordered pairs, shared by all planes so that they may be destroyed in any order.
struct FakeSwitchboard {
  int count;
  FakeFaults faults;
  std::vector<std::shared_ptr<PacketInbox>> inboxes;

  std::shared_ptr<PacketInbox>& inbox(int from, int to) {
    return inboxes[static_cast<size_t>(from) * static_cast<size_t>(count) +
                   static_cast<size_t>(to)];
  }
  void carry(int from, int to, std::vector<std::byte> packet) {
    const FakeVerdict verdict = faults ? faults(from, to, packet) : FakeVerdict{};
    PacketInbox& target = *inbox(from, to);
    if (!target.closed().empty()) return;
    const int64_t not_before = verdict.delay_ns == 0 ? 0 : now_ns() + verdict.delay_ns;
    switch (verdict.kind) {
      case FakeVerdict::Kind::kPass:
        return target.deliver_later(std::move(packet), not_before);
      case FakeVerdict::Kind::kDrop:
        return;
      case FakeVerdict::Kind::kDuplicate:
        target.deliver_later(packet, not_before);
        return target.deliver_later(std::move(packet), not_before);
      case FakeVerdict::Kind::kClose:
        target.close("the fault hook closed it");
        return inbox(to, from)->close("the fault hook closed it");
    }
  }
};

// Tells the peer when this rank's plane goes away.
class FakeLink final : public Link {
 public:
  FakeLink(std::unique_ptr<PacketLink> link, std::shared_ptr<PacketInbox> of_peer, int self)
      : link_(std::move(link)), of_peer_(std::move(of_peer)), self_(self) {}
  ~FakeLink() override { of_peer_->close("rank " + std::to_string(self_) + " closed its plane"); }
  size_t write_some(std::span<const Bytes> parts) override { return link_->write_some(parts); }
  void flush() override { link_->flush(); }
  Bytes peek() override { return link_->peek(); }
  void consume(size_t bytes) override { link_->consume(bytes); }
  SleepHandle arm(uint32_t interests) override { return link_->arm(interests); }
  std::string closed() override { return link_->closed(); }

 private:
  std::unique_ptr<PacketLink> link_;
  std::shared_ptr<PacketInbox> of_peer_;
  int self_;
};

inline std::vector<std::unique_ptr<DataPlane>> make_fake_planes_with_faults(int count,
                                                                            uint64_t epoch,
                                                                            FakeFaults faults) {
  auto board = std::make_shared<FakeSwitchboard>();
  board->count = count;
  board->faults = std::move(faults);
  for (int i = 0; i < count * count; ++i) {
    board->inboxes.push_back(std::make_shared<PacketInbox>());
  }
  std::vector<std::unique_ptr<DataPlane>> planes;
  for (int self = 0; self < count; ++self) {
    const auto bell = std::make_shared<Bell>();
    std::vector<std::unique_ptr<Channel>> channels;
    for (int peer = 0; peer < count; ++peer) {
      if (peer == self) continue;
      auto link =
          std::make_unique<PacketLink>(PacketEnds{self, peer, epoch}, board->inbox(peer, self),
                                       bell, [board, self, peer](std::vector<std::byte> packet) {
                                         board->carry(self, peer, std::move(packet));
                                       });
      channels.push_back(std::make_unique<Channel>(
          self, peer, epoch,
          std::make_unique<FakeLink>(std::move(link), board->inbox(self, peer), self)));
    }
    planes.push_back(std::make_unique<LinkedPlane>(self, epoch, std::move(channels), nullptr));
  }
  return planes;
}

inline std::vector<std::unique_ptr<DataPlane>> make_fake_planes(int count, uint64_t epoch) {
  return make_fake_planes_with_faults(count, epoch, nullptr);
}

}  // namespace coxswain::comm

// The grpc transport: packets leave through a function and come in through ports; JavaScript owns
// the connections, proves the peers and delivers in order. Slow, but it crosses anything.
#include <algorithm>
#include <map>
#include <mutex>

#include "base/clock.h"
#include "comm/packet_link.h"
#include "comm/plane.h"
#include "comm/probe.h"

namespace coxswain::comm {
namespace {

// A wake through JavaScript takes far longer than any spin.
constexpr int64_t kProbeSpinNs = 20'000;

class InboxPort final : public GrpcPort {
 public:
  InboxPort() : inbox_(std::make_shared<PacketInbox>()) {}
  void deliver(std::span<const std::byte> frame) override { inbox_->deliver(frame); }
  void closed(const std::string& reason) override { inbox_->close(reason); }
  const std::shared_ptr<PacketInbox>& inbox() const { return inbox_; }

 private:
  std::shared_ptr<PacketInbox> inbox_;
};

class InboxBridge final : public GrpcBridge {
 public:
  InboxBridge(OutgoingFrame outgoing, void* context) : outgoing_(outgoing), context_(context) {}
  GrpcPort& port(int peer) override { return inbox_port(peer); }
  InboxPort& inbox_port(int peer) {
    const std::lock_guard lock(mutex_);
    auto& port = ports_[peer];
    if (!port) port = std::make_unique<InboxPort>();
    return *port;
  }
  PacketLink::Post post_to(int peer) const {
    return [outgoing = outgoing_, context = context_, peer](std::vector<std::byte> packet) {
      outgoing(context, peer, std::move(packet));
    };
  }

 private:
  OutgoingFrame outgoing_;
  void* context_;
  std::mutex mutex_;
  std::map<int, std::unique_ptr<InboxPort>> ports_;
};

}  // namespace

std::unique_ptr<GrpcBridge> make_grpc_bridge(OutgoingFrame outgoing, void* context) {
  return std::make_unique<InboxBridge>(outgoing, context);
}

std::unique_ptr<DataPlane> open_grpc(const EpochSpec& spec, GrpcBridge& bridge,
                                     const std::atomic<bool>& fence,
                                     std::vector<LinkReport>* reports) {
  auto& inboxes = dynamic_cast<InboxBridge&>(bridge);
  std::vector<LinkSpec> links = spec.links;
  std::sort(links.begin(), links.end(),
            [](const LinkSpec& a, const LinkSpec& b) { return a.peer < b.peer; });
  Wait wait;
  wait.deadline_ns = now_ns() + spec.open_timeout_ns;
  wait.spin_ns = kProbeSpinNs;
  wait.fence = &fence;
  wait.phase = "opening the link";

  const auto bell = std::make_shared<Bell>();
  std::vector<std::unique_ptr<Channel>> channels;
  for (const LinkSpec& link : links) {
    if (link.transport != TransportKind::kGrpc && link.transport != TransportKind::kAuto) {
      throw EngineError("LINK_PROTOCOL", std::string(transport_name(link.transport)) +
                                             " link to rank " + std::to_string(link.peer) +
                                             " in an epoch whose data plane is grpc");
    }
    channels.push_back(std::make_unique<Channel>(
        spec.rank, link.peer, spec.epoch,
        std::make_unique<PacketLink>(PacketEnds{spec.rank, link.peer, spec.epoch},
                                     inboxes.inbox_port(link.peer).inbox(), bell,
                                     inboxes.post_to(link.peer))));
  }
  // All ports are attached before the first probe; pairs go in one order on all ranks.
  Waiter waiter(spec.rank, spec.epoch, nullptr);
  for (const auto& channel : channels) {
    Dialogue dialogue(*channel, waiter, wait);
    double round_trip_us = 0;
    if (spec.rank < channel->peer()) {
      round_trip_us = dialogue.ping().median_us;
      dialogue.send_record(round_trip_us);
    } else {
      dialogue.echo();
      round_trip_us = dialogue.receive_record<double>();
    }
    if (reports != nullptr) {
      reports->push_back({channel->peer(), TransportKind::kGrpc, "grpc", round_trip_us});
    }
  }
  return std::make_unique<LinkedPlane>(spec.rank, spec.epoch, std::move(channels), nullptr);
}

}  // namespace coxswain::comm

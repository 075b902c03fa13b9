// Opens the links of one epoch at a time.
//
// Pairs are opened in one order on all ranks (ascending lower, then higher rank, which for one rank
// is ascending peer), so the first pair that is not open yet always has both its ranks at work on
// it.
#include "comm/fabric.h"

#include <sys/socket.h>

#include <algorithm>
#include <mutex>

#include "base/clock.h"
#include "comm/plane.h"
#include "comm/rendezvous.h"

namespace coxswain::comm {
namespace {

constexpr size_t kDataKeyBytes = 32;
// Longer than it takes to wake a thread: else one rank asleep keeps both asleep for the whole
// ping-pong, and the report states the scheduler's latency.
constexpr int64_t kProbeSpinNs = 50'000;

[[noreturn]] void refuse(const std::string& sentence) {
  throw EngineError("LINK_PROTOCOL", sentence);
}

class FabricOfSockets final : public SocketFabric {
 public:
  FabricOfSockets(const std::string& bind_host, RefusalLog log)
      : listener_(bind_host, std::move(log)) {}
  ~FabricOfSockets() override { end_earlier_epochs(); }

  uint16_t port() const override { return listener_.port(); }
  uint64_t strangers_refused() const override { return listener_.refused(); }
  std::unique_ptr<DataPlane> open(const EpochSpec& spec, const std::atomic<bool>& fence,
                                  std::vector<LinkReport>* reports) override;

 private:
  void end_earlier_epochs();
  Hello identity_of(const EpochSpec& spec);
  OpenedLink open_link(const EpochSpec& spec, const LinkSpec& link, const Hello& identity,
                       const Patience& patience);

  Listener listener_;
  std::mutex opening_;
  uint64_t last_epoch_ = 0;
  std::shared_ptr<std::atomic<bool>> revoked_;
  std::vector<std::weak_ptr<Fd>> sockets_;  // of the links of the last epoch
};

void FabricOfSockets::end_earlier_epochs() {
  if (revoked_) revoked_->store(true);
  for (const auto& weak : sockets_) {
    // Shut down rather than closed: the plane's thread may be about to use it.
    if (const auto socket = weak.lock()) ::shutdown(socket->get(), SHUT_RDWR);
  }
  sockets_.clear();
  revoked_.reset();
}

Hello FabricOfSockets::identity_of(const EpochSpec& spec) {
  const auto incarnation = parse_incarnation(spec.incarnation);
  if (!incarnation) refuse("the incarnation of an epoch has 32 hex digits");
  if (spec.data_key.size() != kDataKeyBytes) refuse("a data key has 32 bytes");
  if (spec.epoch < last_epoch_) {
    refuse("epoch " + std::to_string(spec.epoch) + " is over: this rank has opened epoch " +
           std::to_string(last_epoch_));
  }
  Hello hello;
  hello.epoch = spec.epoch;
  hello.incarnation = *incarnation;
  hello.from = static_cast<uint32_t>(spec.rank);
  return hello;
}

std::unique_ptr<DataPlane> FabricOfSockets::open(const EpochSpec& spec,
                                                 const std::atomic<bool>& fence,
                                                 std::vector<LinkReport>* reports) {
  const std::lock_guard lock(opening_);
  const Hello identity = identity_of(spec);
  end_earlier_epochs();
  last_epoch_ = spec.epoch;

  std::vector<LinkSpec> links = spec.links;
  std::sort(links.begin(), links.end(),
            [](const LinkSpec& a, const LinkSpec& b) { return a.peer < b.peer; });
  DoorPlan plan{spec.epoch, identity.incarnation, spec.rank, spec.data_key, {}};
  for (size_t i = 0; i < links.size(); ++i) {
    const int peer = links[i].peer;
    if (peer < 0 || peer == spec.rank || (i != 0 && peer == links[i - 1].peer)) {
      refuse("rank " + std::to_string(spec.rank) + " cannot have a link to rank " +
             std::to_string(peer) + ", or has it twice");
    }
    if (links[i].transport == TransportKind::kGrpc) refuse("grpc links are not opened by sockets");
    if (peer > spec.rank) plan.dialers.push_back(peer);
  }
  listener_.open_door(std::move(plan));
  struct DoorCloser {
    Listener& listener;
    ~DoorCloser() { listener.close_door(); }
  } const closer{listener_};

  const Patience patience{now_ns() + spec.open_timeout_ns, &fence};
  revoked_ = std::make_shared<std::atomic<bool>>(false);
  std::vector<std::unique_ptr<Channel>> channels;
  for (const LinkSpec& link : links) {
    OpenedLink opened = open_link(spec, link, identity, patience);
    sockets_.push_back(opened.socket);
    channels.push_back(std::move(opened.channel));
    if (reports != nullptr) reports->push_back(opened.report);
  }
  return std::make_unique<LinkedPlane>(spec.rank, spec.epoch, std::move(channels), revoked_);
}

OpenedLink FabricOfSockets::open_link(const EpochSpec& spec, const LinkSpec& link,
                                      const Hello& identity, const Patience& patience) {
  Hello hello = identity;
  hello.to = static_cast<uint32_t>(link.peer);
  Fd socket = spec.rank < link.peer ? listener_.take(link.peer, patience)
                                    : dial({link.host, link.port, spec.data_key}, hello, patience);
  Wait wait;
  wait.deadline_ns = patience.deadline_ns;
  wait.fence = patience.fence;
  wait.spin_ns = kProbeSpinNs;
  wait.phase = "opening the link";
  return agree_on_link({spec.rank, link.peer, spec.epoch}, link.transport, std::move(socket), wait);
}

}  // namespace

std::unique_ptr<SocketFabric> make_socket_fabric(const std::string& bind_host, RefusalLog log) {
  return std::make_unique<FabricOfSockets>(bind_host, std::move(log));
}

std::unique_ptr<Fabric> make_fabric(const std::string& bind_host) {
  return make_socket_fabric(bind_host, nullptr);
}

}  // namespace coxswain::comm

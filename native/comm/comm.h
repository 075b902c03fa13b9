// The data plane as models and engine see it: collectives within a TP group and messages between
// stages. Never a socket. Owned and called by the engine's executor thread only.
//
// Ranks add partials in rank order 0..N-1 from the same bytes, so all ranks hold bitwise equal
// sums. Up to kDirectExchangeBytes everyone sends everything to everyone; above, reduce-scatter +
// all-gather. Every wait has a deadline and polls the fence flag; its error names rank, epoch,
// step, layer, phase and bytes received.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace coxswain::comm {

inline constexpr size_t kDirectExchangeBytes = 32 * 1024;

// What a wait needs to know: when to give up, whom to accuse, how long to spin.
struct Wait {
  int64_t deadline_ns = 0;   // on base/clock.h now_ns()
  int64_t spin_ns = 20'000;  // then sleep (futex or poll)
  const std::atomic<bool>* fence =
      nullptr;  // true: leave with EngineError("EPOCH_FENCED") within 50 ms
  uint64_t step = 0;
  int layer = -1;
  const char* phase = "";  // "attention", "ffn", "head", "boundary", "verdict"
};

// All failures are EngineError: LINK_TIMEOUT, LINK_CLOSED, LINK_PROTOCOL, EPOCH_FENCED.
class DataPlane {
 public:
  virtual ~DataPlane() = default;
  virtual int rank() const = 0;
  virtual uint64_t epoch() const = 0;
  // sum[i] = the partials[i] of all ranks of `group` (ascending ranks, this one included), added in
  // f64 and rounded once. Both spans are equally long; `partials` stays as it is.
  virtual void all_reduce(std::span<const int> group, std::span<const double> partials,
                          std::span<float> sum, const Wait& wait) = 0;
  // Blocks until handed to the link; the receiver takes frames of one peer in order.
  virtual void send(int peer, std::span<const std::byte> bytes, const Wait& wait) = 0;
  // Exactly bytes.size() bytes; another size is LINK_PROTOCOL.
  virtual void recv(int peer, std::span<std::byte> bytes, const Wait& wait) = 0;
  // Counters since the epoch began, for /v1/cluster and `cox demo`.
  struct Counters {
    uint64_t collectives = 0, bytes_sent = 0, bytes_received = 0, wait_ns = 0;
  };
  virtual Counters counters() const = 0;
};

enum class TransportKind { kAuto, kShm, kTcp, kGrpc };
const char* transport_name(TransportKind kind);

// One peer of this rank in one epoch. Ranks that never talk (other stage, other tp index) have no
// link.
struct LinkSpec {
  int peer = -1;
  TransportKind transport = TransportKind::kAuto;
  std::string host;  // the peer's data address (the higher rank dials the lower)
  uint16_t port = 0;
};
struct EpochSpec {
  uint64_t epoch = 0;
  std::string incarnation;  // 32 hex digits
  int rank = 0;
  std::string data_key;  // 32 raw bytes: HKDF(cluster token, "data"); link key = HKDF(data_key,
                         // epoch, incarnation, a, b)
  std::vector<LinkSpec> links;
  int64_t open_timeout_ns = 20'000'000'000;
};
struct LinkReport {
  int peer;
  TransportKind transport;
  std::string interface;  // "shm", "lo", "eth0", the local address
  double round_trip_us;   // median of a ping-pong made when the link was opened
};

// Listens for peers from process start (address and port go into HELLO), authenticates every
// connection (mutual HMAC over role, epoch, incarnation, ranks, both nonces) and shrugs off
// strangers: before proof 4 KiB, 5 s, 64 connections. Opens the links of one epoch at a time.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual uint16_t port() const = 0;
  // Blocks (with deadlines) until every link of the epoch is up and proved. Destroys the links of
  // earlier epochs first. Thread: any; one call at a time. `fence` aborts it.
  virtual std::unique_ptr<DataPlane> open(const EpochSpec& spec, const std::atomic<bool>& fence,
                                          std::vector<LinkReport>* reports) = 0;
};
std::unique_ptr<Fabric> make_fabric(const std::string& bind_host);

// The grpc transport passes through JavaScript: native code hands frames out through `outgoing` and
// takes them in through GrpcPort::deliver. One port a peer; JavaScript owns the connection.
class GrpcPort {
 public:
  virtual ~GrpcPort() = default;
  virtual void deliver(std::span<const std::byte> frame) = 0;  // any thread; bounded queue
  virtual void closed(const std::string& reason) = 0;
};
using OutgoingFrame = void (*)(void* context, int peer, std::vector<std::byte> frame);
// Called before open(); ports are looked up by peer for links of kind kGrpc.
class GrpcBridge {
 public:
  virtual ~GrpcBridge() = default;
  virtual GrpcPort& port(int peer) = 0;
};
std::unique_ptr<GrpcBridge> make_grpc_bridge(OutgoingFrame outgoing, void* context);
// A data plane over grpc ports only (frames authenticated by JavaScript's handshake).
std::unique_ptr<DataPlane> open_grpc(const EpochSpec& spec, GrpcBridge& bridge,
                                     const std::atomic<bool>& fence,
                                     std::vector<LinkReport>* reports);

// A data plane for one rank alone.
std::unique_ptr<DataPlane> make_solo_plane(uint64_t epoch);

}  // namespace coxswain::comm

// The dialogue that turns a proved connection into a link. Both ranks compute the same conclusions
// from the same two offers; only the choice between measured transports is made by one, the lower.
#include "comm/rendezvous.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/sha256.h"
#include "comm/probe.h"
#include "comm/shm_link.h"
#include "comm/tcp_link.h"
#include "comm/transfer.h"

namespace coxswain::comm {
namespace {

// Shared memory copies less than a socket whatever the scheduler did during a few rounds, so it
// must be slower by more than this to be passed over.
constexpr double kShmMargin = 2.0;

struct Offer {
  TransportKind wanted;
  std::array<std::byte, 32> host;
};
// A sentence, or empty; ends with a zero.
using Sentence = std::array<char, 160>;
struct ShmInvite {
  Sentence name;
  Sentence trouble;
};
struct ShmReply {
  ShmToken token;
  Sentence trouble;
};
struct Choice {
  TransportKind transport;
  uint32_t zero;
  double round_trip_us;
};

Sentence sentence_of(const std::string& text) {
  Sentence sentence{};
  std::memcpy(sentence.data(), text.data(), std::min(text.size(), sentence.size() - 1));
  return sentence;
}
std::string text_of(Sentence sentence) {
  sentence.back() = '\0';
  return sentence.data();
}

std::string pair_text(const LinkEnds& ends) {
  return "rank " + std::to_string(std::min(ends.self, ends.peer)) + " and rank " +
         std::to_string(std::max(ends.self, ends.peer));
}

[[noreturn]] void refuse(const LinkEnds& ends, const std::string& why) {
  throw EngineError("LINK_PROTOCOL", pair_text(ends) + " cannot be linked: " + why + " (epoch " +
                                         std::to_string(ends.epoch) + ")");
}

// What both ranks conclude from the two offers.
enum class Trial { kTcpOnly, kShmIfPossible, kShmOnly };
Trial conclude(const LinkEnds& ends, const Offer& mine, const Offer& theirs) {
  const bool one_host = mine.host == theirs.host;
  const auto either = [&](TransportKind kind) {
    return mine.wanted == kind || theirs.wanted == kind;
  };
  for (const TransportKind wanted : {mine.wanted, theirs.wanted}) {
    if (wanted != TransportKind::kAuto && wanted != TransportKind::kShm &&
        wanted != TransportKind::kTcp) {
      refuse(ends, std::string(transport_name(wanted)) + " is no transport between sockets");
    }
  }
  if (either(TransportKind::kShm) && either(TransportKind::kTcp)) {
    refuse(ends, "one is told to use shm, the other tcp");
  }
  if (either(TransportKind::kShm) && !one_host) {
    refuse(ends, "shm was asked for, but they are on different hosts; use tcp or auto");
  }
  if (either(TransportKind::kShm)) return Trial::kShmOnly;
  return either(TransportKind::kTcp) || !one_host ? Trial::kTcpOnly : Trial::kShmIfPossible;
}

// Both ends of the shared memory, mapped and proved; none and the reason where that is impossible.
// The lower rank's segment has lost its name when this returns.
std::unique_ptr<ShmSegment> share_memory(bool leads, Dialogue& dialogue, std::string* trouble) {
  std::unique_ptr<ShmSegment> segment;
  ShmInvite invite{};
  ShmReply reply{};
  if (leads) {
    sweep_stale_segments();
    try {
      segment = ShmSegment::create();
      invite.name = sentence_of(segment->name());
    } catch (const EngineError& error) {
      invite.trouble = sentence_of(error.what());
    }
    dialogue.send_record(invite);
    reply = dialogue.receive_record<ShmReply>();
    if (segment) segment->unlink();
    if (segment && text_of(reply.trouble).empty() && reply.token != segment->state().token) {
      reply.trouble = sentence_of("the name leads to other memory on the other rank");
    }
    dialogue.send_record(reply.trouble);
  } else {
    invite = dialogue.receive_record<ShmInvite>();
    reply.trouble = invite.trouble;
    if (text_of(invite.trouble).empty()) {
      try {
        segment = ShmSegment::open(text_of(invite.name));
        reply.token = segment->state().token;
      } catch (const EngineError& error) {
        reply.trouble = sentence_of(error.what());
      }
    }
    dialogue.send_record(reply);
    reply.trouble = dialogue.receive_record<Sentence>();
  }
  *trouble = text_of(reply.trouble);
  if (!trouble->empty()) segment.reset();
  return segment;
}

RoundTrip measure(bool leads, Dialogue& dialogue) {
  if (leads) return dialogue.ping();
  dialogue.echo();
  return {};
}

}  // namespace

OpenedLink agree_on_link(const LinkEnds& ends, TransportKind wanted, Fd socket, const Wait& wait) {
  const bool leads = ends.self < ends.peer;
  auto shared_socket = std::make_shared<Fd>(std::move(socket));
  auto link = std::make_unique<TcpLink>(shared_socket);
  TcpLink& tcp_link = *link;
  auto tcp = std::make_unique<Channel>(ends.self, ends.peer, ends.epoch, std::move(link));
  Waiter waiter(ends.self, ends.epoch, nullptr);
  Dialogue dialogue(*tcp, waiter, wait);

  const Offer mine{wanted, host_identity()};
  dialogue.send_record(mine);
  const Trial trial = conclude(ends, mine, dialogue.receive_record<Offer>());

  std::string trouble;
  std::unique_ptr<ShmSegment> segment;
  if (trial != Trial::kTcpOnly) segment = share_memory(leads, dialogue, &trouble);
  if (trial == Trial::kShmOnly && !segment) refuse(ends, "shm was asked for: " + trouble);

  RoundTrip over_tcp;
  RoundTrip over_shm;
  if (trial != Trial::kShmOnly) over_tcp = measure(leads, dialogue);
  std::unique_ptr<Channel> shm;
  if (segment) {
    shm = std::make_unique<Channel>(
        ends.self, ends.peer, ends.epoch,
        std::make_unique<ShmLink>(std::move(segment), leads ? 0 : 1, shared_socket));
    Dialogue in_memory(*shm, waiter, wait);
    over_shm = measure(leads, in_memory);
  }
  Choice choice{};
  if (leads) {
    const bool take_shm =
        shm && (trial == Trial::kShmOnly || over_shm.best_us <= kShmMargin * over_tcp.best_us);
    choice = take_shm ? Choice{TransportKind::kShm, 0, over_shm.median_us}
                      : Choice{TransportKind::kTcp, 0, over_tcp.median_us};
    dialogue.send_record(choice);
  } else {
    choice = dialogue.receive_record<Choice>();
  }
  const bool use_shm = choice.transport == TransportKind::kShm;
  ReceivePadding padding(*tcp);
  if (use_shm) waiter.run(padding, wait);
  if ((use_shm && (!shm || !tcp_link.drained())) ||
      (!use_shm && (choice.transport != TransportKind::kTcp || trial == Trial::kShmOnly))) {
    refuse(ends, "the lower rank chose a transport that was not offered");
  }
  LinkReport report{ends.peer, choice.transport,
                    use_shm ? "shm" : local_interface(shared_socket->get()), choice.round_trip_us};
  return {use_shm ? std::move(shm) : std::move(tcp), shared_socket, report};
}

}  // namespace coxswain::comm

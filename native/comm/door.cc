// Checks of the acceptor's side: Hello against the plan of the epoch, proof against the link key,
// nonce against those that were admitted.
#include "comm/door.h"

#include <algorithm>

namespace coxswain::comm {
namespace {

// Only holders of the key add nonces, one a connection; an epoch needs as many as it has links.
constexpr size_t kNoncesMax = 4096;

}  // namespace

Door::Answer Door::answer(const Hello& dialer) const {
  Hello about;
  about.epoch = plan_.epoch;
  about.incarnation = plan_.incarnation;
  about.from = static_cast<uint32_t>(plan_.rank);
  about.to = dialer.from;
  Answer answer;
  answer.hello = make_hello(Role::kAcceptor, about);
  answer.refusal = refusal_of(dialer, answer.hello);
  const bool same_version = dialer.version == answer.hello.version;
  answer.early = same_version && dialer.epoch > plan_.epoch;
  const bool expected = std::any_of(plan_.dialers.begin(), plan_.dialers.end(), [&](int rank) {
    return static_cast<uint32_t>(rank) == dialer.from;
  });
  if (answer.refusal.empty() && !expected) {
    answer.refusal = "rank " + std::to_string(dialer.from) + " has no link to this rank";
  }
  answer.reply = answer.refusal.empty() || !same_version;
  return answer;
}

std::string Door::admit(const Hello& dialer, const Hello& acceptor, const Proof& proof,
                        Proof* ours) {
  // The door may have been replaced between the Hello and the proof.
  if (acceptor.epoch != plan_.epoch || acceptor.incarnation != plan_.incarnation) {
    return "the epoch it was greeted in is over";
  }
  const std::vector<std::byte> key = link_key(plan_.data_key, dialer);
  if (!equal_constant_time(prove(key, Role::kDialer, dialer, acceptor), proof)) {
    return "its proof is wrong";
  }
  if (used_.size() >= kNoncesMax || !used_.insert(dialer.nonce).second) {
    return "its nonce was used before";
  }
  *ours = prove(key, Role::kAcceptor, dialer, acceptor);
  return {};
}

}  // namespace coxswain::comm

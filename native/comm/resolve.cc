// One lookup a name at a time: who asks again while one is under way waits for the same, so that a
// resolver that hangs costs one thread a name and not one an attempt.
#include "comm/resolve.h"

#include <netdb.h>

#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/clock.h"

namespace coxswain::comm {
namespace {

// Names that are being looked up at once; more only when resolvers hang.
constexpr size_t kLookupsMax = 16;
// Fences are noticed between slices.
constexpr std::chrono::milliseconds kSlice{20};

struct Answer {
  std::vector<Address> addresses;
  std::string reason;
};

Answer ask_system(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  Answer answer;
  const int failed = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (failed != 0) {
    answer.reason = gai_strerror(failed);
    return answer;
  }
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    Address& address = answer.addresses.emplace_back();
    address.size = a->ai_addrlen;
    std::memcpy(&address.storage, a->ai_addr, a->ai_addrlen);
  }
  freeaddrinfo(list);
  return answer;
}

struct Question {
  std::string host;
  uint16_t port;
  int flags;
  auto operator<=>(const Question&) const = default;
};

struct Lookup {
  std::mutex mutex;
  std::condition_variable answered;
  bool done = false;  // under mutex, like the answer
  Answer answer;
};

struct Lookups {
  std::mutex mutex;
  std::map<Question, std::shared_ptr<Lookup>> under_way;
};

// Never destroyed: a thread that the resolver holds may come back while the process ends.
Lookups& lookups() {
  static Lookups& all = *new Lookups;
  return all;
}

void look_up(const Question& question, Lookup& lookup) {
  Answer answer = ask_system(question.host, question.port, question.flags);
  {
    const std::lock_guard lock(lookups().mutex);
    lookups().under_way.erase(question);
  }
  const std::lock_guard lock(lookup.mutex);
  lookup.answer = std::move(answer);
  lookup.done = true;
  lookup.answered.notify_all();
}

// The lookup of this question, begun if none is under way; null and a reason when it cannot be.
std::shared_ptr<Lookup> join_lookup(const Question& question, std::string* reason) {
  const std::lock_guard lock(lookups().mutex);
  auto& under_way = lookups().under_way;
  const auto found = under_way.find(question);
  if (found != under_way.end()) return found->second;
  if (under_way.size() >= kLookupsMax) {
    *reason = "the system's resolver does not answer (" + std::to_string(under_way.size()) +
              " names are being looked up)";
    return nullptr;
  }
  auto lookup = std::make_shared<Lookup>();
  try {
    std::thread([question, lookup] { look_up(question, *lookup); }).detach();
  } catch (const std::system_error& error) {
    *reason = std::string("no thread for looking up its name: ") + error.what();
    return nullptr;
  }
  under_way.emplace(question, lookup);
  return lookup;
}

}  // namespace

std::vector<Address> resolve(const std::string& host, uint16_t port, bool passive,
                             const Patience& patience, std::string* reason) {
  const int flags = passive ? AI_PASSIVE : 0;
  Answer numeric = ask_system(host, port, flags | AI_NUMERICHOST);
  if (!numeric.addresses.empty()) return std::move(numeric.addresses);
  const std::shared_ptr<Lookup> lookup = join_lookup({host, port, flags}, reason);
  if (!lookup) return {};
  std::unique_lock lock(lookup->mutex);
  while (!lookup->done) {
    patience.check_fence();
    if (patience.over()) {
      *reason = "its name was not resolved in time";
      return {};
    }
    lookup->answered.wait_until(lock, std::chrono::system_clock::now() + kSlice);
  }
  *reason = lookup->answer.reason;
  return lookup->answer.addresses;
}

}  // namespace coxswain::comm

// The listener's thread: accepts, greets, admits or shows out. Guests are its own; door and
// admitted connections are shared under the lock.
#include "comm/listener.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"

namespace coxswain::comm {
namespace {

// Deadlines of guests are looked at at least this often.
constexpr int kPollMs = 250;
constexpr std::chrono::milliseconds kNoDescriptorsPause{20};
constexpr const char* kLeft = "it left before it had proved itself";
constexpr int64_t kTakeSliceNs = 20'000'000;

}  // namespace

Listener::Listener(const std::string& bind_host, RefusalLog log)
    : listener_(listen_on(bind_host, 0)), port_(local_port(listener_.get())), log_(std::move(log)) {
  Pipe pipe = make_pipe();
  wake_read_ = std::move(pipe.read);
  wake_write_ = std::move(pipe.write);
  thread_ = std::thread([this] { run(); });
}

Listener::~Listener() {
  stopping_ = true;
  wake();
  thread_.join();
}

void Listener::wake() {
  const char byte = 0;
  // A full pipe wakes as well.
  [[maybe_unused]] const ssize_t n = ::write(wake_write_.get(), &byte, 1);
}

void Listener::open_door(DoorPlan plan) {
  const std::lock_guard lock(mutex_);
  ready_.clear();
  last_refusal_.clear();
  door_epoch_ = plan.epoch;
  door_.emplace(std::move(plan));
}

void Listener::close_door() {
  const std::lock_guard lock(mutex_);
  door_.reset();
  ready_.clear();
}

Fd Listener::take(int peer, const Patience& patience) {
  const int64_t start = now_ns();
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto found = ready_.find(peer);
    if (found != ready_.end()) {
      Fd fd = std::move(found->second);
      ready_.erase(found);
      return fd;
    }
    patience.check_fence();
    if (patience.over()) break;
    admitted_.wait_until(lock,
                         std::chrono::system_clock::now() + std::chrono::nanoseconds(kTakeSliceNs));
  }
  std::string text = "rank " + std::to_string(peer) + " did not dial within " +
                     std::to_string((now_ns() - start) / 1'000'000) + " ms (epoch " +
                     std::to_string(door_epoch_) + ")";
  if (!last_refusal_.empty()) text += "; the last connection was refused: " + last_refusal_;
  throw EngineError("LINK_TIMEOUT", text);
}

void Listener::run() {
  std::vector<pollfd> entries;
  while (!stopping_) {
    entries.assign({{listener_.get(), POLLIN, 0}, {wake_read_.get(), POLLIN, 0}});
    for (const Guest& guest : guests_) entries.push_back({guest.fd.get(), POLLIN, 0});
    poll(entries.data(), static_cast<nfds_t>(entries.size()), kPollMs);
    size_t i = 2;
    for (auto guest = guests_.begin(); guest != guests_.end(); ++i) {
      bool stays = entries[i].revents == 0 || serve(*guest);
      if (stays && now_ns() >= guest->deadline_ns) {
        refuse(guest->address, "it did not prove itself in time");
        stays = false;
      }
      guest = stays ? std::next(guest) : guests_.erase(guest);
    }
    if (entries[0].revents != 0) accept_guests();
  }
}

void Listener::accept_guests() {
  // At most as many as there are places, so that a flood does not keep the guests from being
  // served.
  for (size_t i = 0; i < kUnprovenConnectionsMax; ++i) {
    Fd fd = accept_from(listener_.get());
    if (!fd) {
      // Out of descriptors: the connection stays in the queue, so poll would return at once.
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(kNoDescriptorsPause);
      return;
    }
    if (guests_.size() == kUnprovenConnectionsMax) {
      refuse(guests_.front().address, "too many connections wait to prove themselves");
      guests_.pop_front();
    }
    Guest& guest = guests_.emplace_back();
    guest.address = remote_address(fd.get());
    guest.fd = std::move(fd);
    guest.deadline_ns = now_ns() + kUnprovenNs;
  }
}

bool Listener::serve(Guest& guest) {
  const size_t wanted = guest.greeted ? guest.bytes.size() : sizeof(Hello);
  const ssize_t n =
      ::recv(guest.fd.get(), guest.bytes.data() + guest.received, wanted - guest.received, 0);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
  if (n <= 0) {
    refuse(guest.address, kLeft);
    return false;
  }
  guest.received += static_cast<size_t>(n);
  // A stranger that speaks another protocol is known by its first bytes.
  const Hello ours;
  if (guest.received >= sizeof ours.magic &&
      std::memcmp(guest.bytes.data(), &ours.magic, sizeof ours.magic) != 0) {
    refuse(guest.address, "it does not speak the link protocol");
    return false;
  }
  if (guest.received < wanted) return true;
  return guest.greeted ? admit(guest) : greet(guest);
}

bool Listener::greet(Guest& guest) {
  std::memcpy(&guest.dialer, guest.bytes.data(), sizeof guest.dialer);
  Door::Answer answer;
  {
    const std::lock_guard lock(mutex_);
    // A peer may be told of an epoch before this rank is; it will dial again.
    if (!door_) return false;
    answer = door_->answer(guest.dialer);
  }
  guest.acceptor = answer.hello;
  guest.greeted = true;
  // A new socket takes 72 bytes at once, or it is not worth waiting for.
  const Bytes reply = std::as_bytes(std::span(&guest.acceptor, 1));
  if (answer.reply && !write_all(guest.fd.get(), reply, {0, nullptr}, &answer.refusal)) {
    answer.early = false;
  }
  if (!answer.refusal.empty() && !answer.early) refuse(guest.address, answer.refusal);
  return answer.refusal.empty();
}

bool Listener::admit(Guest& guest) {
  Proof proof;
  std::memcpy(proof.data(), guest.bytes.data() + sizeof(Hello), sizeof proof);
  Proof ours;
  std::string refusal = "the epoch was opened or given up";
  {
    const std::lock_guard lock(mutex_);
    if (door_) refusal = door_->admit(guest.dialer, guest.acceptor, proof, &ours);
    if (refusal.empty() && write_all(guest.fd.get(), ours, {0, nullptr}, &refusal)) {
      ready_[static_cast<int>(guest.dialer.from)] = std::move(guest.fd);
    }
  }
  if (refusal.empty()) {
    admitted_.notify_all();
  } else {
    refuse(guest.address, refusal);
  }
  return false;
}

void Listener::refuse(const std::string& address, const std::string& reason) {
  const uint64_t count = ++refused_;
  {
    const std::lock_guard lock(mutex_);
    // Why this rank showed someone out tells more than that someone left.
    if (last_refusal_.empty() || reason != kLeft) last_refusal_ = address + ": " + reason;
  }
  if (log_ && std::has_single_bit(count)) {
    log_("refused connection " + std::to_string(count) + " from " + address + ": " + reason);
  }
}

}  // namespace coxswain::comm

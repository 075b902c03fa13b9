// Takes connections from process start on its own thread, lets the peers of the open epoch prove
// themselves, and shrugs off everyone else: no stranger costs more than 4 KiB, 5 s and one of 64
// places, and when those are full the oldest stranger goes.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "comm/door.h"
#include "comm/socket.h"

namespace coxswain::comm {

// Called on the listener's thread with one sentence about a refused connection; at the 1st, 2nd,
// 4th, 8th ... only, so that a flood does not fill a disk. Never holds keys or nonces.
using RefusalLog = std::function<void(const std::string& sentence)>;

class Listener {
 public:
  Listener(const std::string& bind_host, RefusalLog log);
  ~Listener();

  uint16_t port() const { return port_; }
  uint64_t refused() const { return refused_; }
  // From now on only peers of `plan` are admitted; earlier admitted ones that nobody took are
  // closed.
  void open_door(DoorPlan plan);
  void close_door();
  // The proved connection from `peer`; EngineError LINK_TIMEOUT when it does not come in time.
  Fd take(int peer, const Patience& patience);

 private:
  struct Guest {
    Fd fd;
    int64_t deadline_ns;
    std::string address;
    size_t received = 0;
    std::array<std::byte, sizeof(Hello) + sizeof(Proof)> bytes;
    Hello dialer, acceptor;
    bool greeted = false;
  };
  void run();
  void accept_guests();
  // True while the guest may stay.
  bool serve(Guest& guest);
  bool greet(Guest& guest);
  bool admit(Guest& guest);
  void refuse(const std::string& address, const std::string& reason);
  void wake();

  Fd listener_;
  uint16_t port_;
  RefusalLog log_;
  Fd wake_read_, wake_write_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> refused_{0};
  std::list<Guest> guests_;  // oldest first; the listener's thread only

  std::mutex mutex_;
  std::condition_variable admitted_;
  std::optional<Door> door_;
  uint64_t door_epoch_ = 0;
  std::map<int, Fd> ready_;
  std::string last_refusal_;
  std::thread thread_;
};

}  // namespace coxswain::comm

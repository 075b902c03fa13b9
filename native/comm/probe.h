// Frames of the dialogue that opens a link, and the ping-pong that proves and measures it.
#pragma once
#include "comm/wait.h"

namespace coxswain::comm {

// Microseconds. The best tells transports apart, the median is what a report states.
struct RoundTrip {
  double best_us = 0, median_us = 0;
};

class Dialogue {
 public:
  Dialogue(Channel& channel, Waiter& waiter, const Wait& wait)
      : channel_(channel), waiter_(waiter), wait_(wait) {}

  void send(Bytes bytes);
  // LINK_PROTOCOL when the peer's frame has another size.
  void receive(MutableBytes bytes);
  template <typename T>
  void send_record(const T& record) {
    send(std::as_bytes(std::span(&record, 1)));
  }
  template <typename T>
  T receive_record() {
    T record;
    receive(std::as_writable_bytes(std::span(&record, 1)));
    return record;
  }
  // Of the leading side; the other side echoes.
  RoundTrip ping();
  void echo();

 private:
  Channel& channel_;
  Waiter& waiter_;
  const Wait& wait_;
};

}  // namespace coxswain::comm

// One frame from one rank to another, as operations for the waiter.
#pragma once
#include <vector>

#include "comm/wait.h"

namespace coxswain::comm {

class SendFrame final : public Operation {
 public:
  SendFrame(Channel& channel, FrameKind kind, Bytes payload, const Wait& wait);
  Progress advance() override;
  void list_pending(std::vector<Pending>& pending) override;

 private:
  Channel& channel_;
};

// Waits for the header only; its size decides what to do with the payload.
class ReceiveHeader final : public Operation {
 public:
  ReceiveHeader(Channel& channel, FrameKind kind, size_t bytes_expected, const Wait& wait);
  Progress advance() override;
  void list_pending(std::vector<Pending>& pending) override;

 private:
  Channel& channel_;
  size_t expected_;
  const Wait& wait_;
};

class ReceivePayload final : public Operation {
 public:
  ReceivePayload(Channel& channel, MutableBytes into) : channel_(channel), into_(into) {}
  Progress advance() override;
  void list_pending(std::vector<Pending>& pending) override;

 private:
  Channel& channel_;
  MutableBytes into_;
  size_t received_ = 0;
};

// Waits for the padding of the last frame, before a link is used for something else.
class ReceivePadding final : public Operation {
 public:
  explicit ReceivePadding(Channel& channel) : channel_(channel) {}
  Progress advance() override;
  void list_pending(std::vector<Pending>& pending) override;

 private:
  Channel& channel_;
};

}  // namespace coxswain::comm

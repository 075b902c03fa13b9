// The data plane of one rank over any links: all transports share this class. Owns the channels of
// one epoch. After a failure the streams are out of step, so every later call fails the same way.
#pragma once
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "comm/collective.h"
#include "comm/comm.h"
#include "comm/wait.h"

namespace coxswain::comm {

class LinkedPlane final : public DataPlane {
 public:
  // `revoked` may be null; set to true it makes every wait of this plane end with EPOCH_FENCED.
  LinkedPlane(int rank, uint64_t epoch, std::vector<std::unique_ptr<Channel>> channels,
              std::shared_ptr<std::atomic<bool>> revoked);

  int rank() const override { return rank_; }
  uint64_t epoch() const override { return epoch_; }
  void all_reduce(std::span<const int> group, std::span<const double> partials,
                  std::span<float> sum, const Wait& wait) override;
  void send(int peer, Bytes bytes, const Wait& wait) override;
  void recv(int peer, MutableBytes bytes, const Wait& wait) override;
  Counters counters() const override;

 private:
  Channel& channel_to(int peer, const Wait& wait);
  // Runs `action`; a failure is kept and repeated by all later calls.
  template <typename Action>
  void guarded(const Wait& wait, Action action);

  const int rank_;
  const uint64_t epoch_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::shared_ptr<std::atomic<bool>> revoked_;
  Waiter waiter_;
  AllReduce all_reduce_;
  std::vector<Channel*> others_;
  std::optional<EngineError> failure_;
  uint64_t collectives_ = 0;
};

}  // namespace coxswain::comm

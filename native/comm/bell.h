// Wakes a thread of the same process: links made of queues ring it, their owner sleeps on it.
// All links of one plane share one bell.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace coxswain::comm {

class Bell {
 public:
  void ring();
  uint64_t rings();
  // Sleeps while rings() == seen, at most timeout_ns.
  void wait(uint64_t seen, int64_t timeout_ns);

 private:
  std::mutex mutex_;
  std::condition_variable rung_;
  uint64_t rings_ = 0;
};

}  // namespace coxswain::comm

// What the engine's threads say to JavaScript: results and failures, outgoing grpc frames,
// strangers shown out. One thread-safe function carries them all and keeps the process alive until
// stop().
#pragma once
#include <napi.h>

#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "engine/engine.h"

namespace coxswain::addon {

struct OutgoingGrpcFrame {
  int peer;
  std::vector<std::byte> bytes;
};
// A stranger on the data port, shown out.
struct Refusal {
  std::string sentence;
};
using Message = std::variant<engine::EngineEvent, OutgoingGrpcFrame, Refusal>;

// Both JavaScript listeners behind one thread-safe function.
class Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  Mailbox(Napi::Env env, const Napi::Function& on_event, const Napi::Function& on_frame);

  // Any thread. The queue is as long as what the engine may answer: at most its queued steps.
  void post(Message message);
  // JavaScript thread: no listener is called after this.
  void stop();

 private:
  void deliver(Napi::Env env, const Napi::Function& on_event, const Message& message);

  std::mutex mutex_;
  bool closed_ = false;   // under mutex_
  bool stopped_ = false;  // JavaScript thread
  Napi::ThreadSafeFunction function_;
  Napi::FunctionReference on_frame_;
};

}  // namespace coxswain::addon

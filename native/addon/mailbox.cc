// Messages become JavaScript values on the JavaScript thread; after stop() they are dropped there.
#include "addon/mailbox.h"

namespace coxswain::addon {
namespace {

Napi::Value bytes_of(Napi::Env env, const std::vector<std::byte>& bytes) {
  return Napi::Buffer<uint8_t>::Copy(env, reinterpret_cast<const uint8_t*>(bytes.data()),
                                     bytes.size());
}

}  // namespace

Mailbox::Mailbox(Napi::Env env, const Napi::Function& on_event, const Napi::Function& on_frame)
    : function_(Napi::ThreadSafeFunction::New(env, on_event, "coxswain engine", 0, 1)),
      on_frame_(Napi::Persistent(on_frame)) {}

void Mailbox::post(Message message) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  auto* heap = new Message(std::move(message));
  const napi_status status = function_.NonBlockingCall(
      heap, [self = shared_from_this()](Napi::Env env, Napi::Function on_event, Message* item) {
        const std::unique_ptr<Message> owned(item);
        if (env == nullptr || self->stopped_) return;
        self->deliver(env, on_event, *owned);
      });
  if (status != napi_ok) delete heap;
}

void Mailbox::stop() {
  stopped_ = true;
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  closed_ = true;
  function_.Release();
  on_frame_.Reset();
}

void Mailbox::deliver(Napi::Env env, const Napi::Function& on_event, const Message& message) {
  const Napi::HandleScope scope(env);
  if (const auto* frame = std::get_if<OutgoingGrpcFrame>(&message)) {
    on_frame_.Call({Napi::Number::New(env, frame->peer), bytes_of(env, frame->bytes)});
    return;
  }
  Napi::Object object = Napi::Object::New(env);
  if (const auto* refusal = std::get_if<Refusal>(&message)) {
    object.Set("kind", "refused");
    object.Set("message", refusal->sentence);
    on_event.Call({object});
    return;
  }
  const auto& event = std::get<engine::EngineEvent>(message);
  const bool result = event.kind == engine::EngineEvent::Kind::kResult;
  object.Set("kind", result ? "result" : "failed");
  object.Set("epoch", static_cast<double>(event.epoch));
  object.Set("step", static_cast<double>(event.step));
  if (result) {
    object.Set("bytes", bytes_of(env, event.bytes));
  } else {
    object.Set("code", event.code);
    object.Set("message", event.message);
  }
  on_event.Call({object});
}

}  // namespace coxswain::addon

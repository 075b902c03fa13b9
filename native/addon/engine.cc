// class NativeEngine: one rank's engine for JavaScript. Methods and names as in
// src/engine/native-engine.ts.
//
//   new NativeEngine(onEvent(event), onFrame(peer, bytes))
// Results and outgoing grpc frames come from other threads through one thread-safe function, which
// keeps the process alive until close(). close() may be called at any time and often; afterwards
// every other call is SHUTTING_DOWN.
#include <memory>
#include <mutex>

#include "addon/async_task.h"
#include "addon/js_values.h"
#include "addon/registry.h"
#include "base/clock.h"
#include "comm/comm.h"
#include "comm/fabric.h"
#include "engine/engine.h"

namespace coxswain::addon {
namespace {

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
  Mailbox(Napi::Env env, const Napi::Function& on_event, const Napi::Function& on_frame)
      : function_(Napi::ThreadSafeFunction::New(env, on_event, "coxswain engine", 0, 1)),
        on_frame_(Napi::Persistent(on_frame)) {}

  // Any thread. The queue is as long as what the engine may answer: at most its queued steps.
  void post(Message message) {
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

  // JavaScript thread: no listener is called after this.
  void stop() {
    stopped_ = true;
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    closed_ = true;
    function_.Release();
    on_frame_.Reset();
  }

 private:
  static Napi::Value bytes_of(Napi::Env env, const std::vector<std::byte>& bytes) {
    return Napi::Buffer<uint8_t>::Copy(env, reinterpret_cast<const uint8_t*>(bytes.data()),
                                       bytes.size());
  }

  void deliver(Napi::Env env, const Napi::Function& on_event, const Message& message) {
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

  std::mutex mutex_;
  bool closed_ = false;   // under mutex_
  bool stopped_ = false;  // JavaScript thread
  Napi::ThreadSafeFunction function_;
  Napi::FunctionReference on_frame_;
};

// At most one refusal a second reaches JavaScript: a flood of strangers must not fill its queue.
// Listener thread only.
class RefusalPause {
 public:
  bool over() {
    const int64_t now = now_ns();
    if (last_ns_ != 0 && now - last_ns_ < kPauseNs) return false;
    last_ns_ = now;
    return true;
  }

 private:
  static constexpr int64_t kPauseNs = 1'000'000'000;
  int64_t last_ns_ = 0;
};

// What asynchronous tasks share with the JavaScript object; whoever lets go last destroys the
// engine.
struct Core {
  std::unique_ptr<comm::Fabric> fabric;
  std::shared_ptr<comm::GrpcBridge> bridge;         // of the next epoch; JavaScript thread
  std::shared_ptr<comm::GrpcBridge> bridge_in_use;  // of the engine's data plane; under `control`
  std::unique_ptr<engine::Engine> engine;
  // Aborts the openEpoch that was asked for last. Each has a flag of its own: were it shared, the
  // next openEpoch would take back the fence of one that has not noticed it yet. JavaScript thread.
  std::shared_ptr<std::atomic<bool>> abandon = std::make_shared<std::atomic<bool>>(false);
  std::mutex opening;  // held by an openEpoch from its beginning to its end; before `control`
  std::mutex control;  // one change of epoch at a time
  std::mutex load;     // guards `engine` while it is made
};

struct Loaded {
  engine::EngineInfo info;
  uint16_t port;
};

struct Opened {
  std::vector<comm::LinkReport> reports;
};

comm::TransportKind transport_of(Napi::Env env, const std::string& name) {
  for (const comm::TransportKind kind : {comm::TransportKind::kAuto, comm::TransportKind::kShm,
                                         comm::TransportKind::kTcp, comm::TransportKind::kGrpc}) {
    if (name == comm::transport_name(kind)) return kind;
  }
  throw Napi::TypeError::New(env, "unknown transport " + name);
}

std::span<const std::byte> bytes_argument(const Napi::CallbackInfo& info, size_t index) {
  if (info.Length() <= index || !info[index].IsTypedArray()) {
    throw Napi::TypeError::New(info.Env(),
                               "argument " + std::to_string(index) + " is a Uint8Array");
  }
  const auto array = info[index].As<Napi::Uint8Array>();
  return {reinterpret_cast<const std::byte*>(array.Data()), array.ByteLength()};
}

int peer_argument(const Napi::CallbackInfo& info) {
  if (info.Length() < 1 || !info[0].IsNumber()) {
    throw Napi::TypeError::New(info.Env(), "the first argument is a peer's rank");
  }
  return info[0].As<Napi::Number>().Int32Value();
}

class NativeEngine : public Napi::ObjectWrap<NativeEngine> {
 public:
  static void define(Napi::Env env, Napi::Object exports) {
    const Napi::Function constructor =
        DefineClass(env, "NativeEngine",
                    {InstanceMethod<&NativeEngine::load>("load"),
                     InstanceMethod<&NativeEngine::open_epoch>("openEpoch"),
                     InstanceMethod<&NativeEngine::submit>("submit"),
                     InstanceMethod<&NativeEngine::fence>("fence"),
                     InstanceMethod<&NativeEngine::progress>("progress"),
                     InstanceMethod<&NativeEngine::counters>("counters"),
                     InstanceMethod<&NativeEngine::grpc_begin>("grpcBegin"),
                     InstanceMethod<&NativeEngine::grpc_deliver>("grpcDeliver"),
                     InstanceMethod<&NativeEngine::grpc_closed>("grpcClosed"),
                     InstanceMethod<&NativeEngine::close>("close")});
    exports.Set("NativeEngine", constructor);
  }

  explicit NativeEngine(const Napi::CallbackInfo& info) : Napi::ObjectWrap<NativeEngine>(info) {
    if (info.Length() < 2 || !info[0].IsFunction() || !info[1].IsFunction()) {
      throw Napi::TypeError::New(info.Env(), "new NativeEngine(onEvent, onFrame)");
    }
    mailbox_ = std::make_shared<Mailbox>(info.Env(), info[0].As<Napi::Function>(),
                                         info[1].As<Napi::Function>());
    core_ = std::make_shared<Core>();
  }

  ~NativeEngine() override {
    if (mailbox_) mailbox_->stop();
  }

 private:
  std::shared_ptr<Core> open_core(const Napi::CallbackInfo& info) const {
    if (core_) return core_;
    throw to_js_error(info.Env(), {"SHUTTING_DOWN", "the engine is closed"});
  }

  std::shared_ptr<Core> loaded_core(const Napi::CallbackInfo& info) const {
    std::shared_ptr<Core> core = open_core(info);
    const std::lock_guard lock(core->load);
    if (core->engine) return core;
    throw to_js_error(info.Env(), {"CLUSTER_NOT_READY", "the engine has not loaded a model"});
  }

  Napi::Value load(const Napi::CallbackInfo& info) {
    const std::shared_ptr<Core> core = open_core(info);
    const auto object = info[0].As<Napi::Object>();
    engine::EngineOptions options;
    options.path = text_field(object, "path");
    options.topology = to_topology(object.Get("topology"));
    options.rank = static_cast<int>(number_field(object, "rank"));
    options.threads = static_cast<int>(number_field(object, "threads"));
    options.kv_blocks = static_cast<int64_t>(number_field(object, "kvBlocks"));
    options.slots_max = static_cast<int64_t>(number_field(object, "slotsMax"));
    options.step_rows_max = static_cast<int64_t>(number_field(object, "stepRowsMax"));
    options.share_cores = boolean_field(object, "shareCores");
    const std::string host = text_field(object, "dataHost");
    const std::shared_ptr<Mailbox> mailbox = mailbox_;
    return AsyncTask<Loaded>::start(
        info.Env(),
        [core, mailbox, options, host] {
          const std::lock_guard control(core->control);
          if (core->engine)
            throw EngineError("CONFIG_INVALID", "this engine has loaded a model already");
          std::unique_ptr<comm::Fabric> fabric = comm::make_socket_fabric(
              host, [mailbox, quiet = RefusalPause()](const std::string& sentence) mutable {
                if (quiet.over()) mailbox->post(Refusal{sentence});
              });
          std::unique_ptr<engine::Engine> loaded = engine::Engine::load(
              options, [mailbox](engine::EngineEvent event) { mailbox->post(std::move(event)); });
          const std::lock_guard lock(core->load);
          core->fabric = std::move(fabric);
          core->engine = std::move(loaded);
          return Loaded{core->engine->info(), core->fabric->port()};
        },
        // Of the engine itself nothing: close() may have destroyed it since.
        [](Napi::Env env, Loaded&& loaded) {
          const engine::EngineInfo& facts = loaded.info;
          Napi::Object result = Napi::Object::New(env);
          result.Set("fingerprint", facts.fingerprint);
          result.Set("planHash", facts.plan_hash);
          result.Set("numericsId", facts.numerics_id);
          result.Set("isa", facts.isa);
          result.Set("weightBytes", static_cast<double>(facts.weight_bytes));
          result.Set("kvBytes", static_cast<double>(facts.kv_bytes));
          result.Set("residentBytes", static_cast<double>(facts.resident_bytes));
          result.Set("context", static_cast<double>(facts.context));
          result.Set("vocab", static_cast<double>(facts.vocab));
          result.Set("loadMs", facts.load_ms);
          result.Set("dataPort", static_cast<double>(loaded.port));
          return Napi::Value(result);
        });
  }

  static comm::EpochSpec epoch_spec(const Napi::Object& object) {
    comm::EpochSpec spec;
    spec.epoch = static_cast<uint64_t>(number_field(object, "epoch"));
    spec.incarnation = text_field(object, "incarnation");
    spec.rank = static_cast<int>(number_field(object, "rank"));
    const auto key = object.Get("dataKey").As<Napi::Uint8Array>();
    spec.data_key.assign(reinterpret_cast<const char*>(key.Data()), key.ByteLength());
    spec.open_timeout_ns = static_cast<int64_t>(number_field(object, "openTimeoutMs") * 1e6);
    const auto links = object.Get("links").As<Napi::Array>();
    for (uint32_t i = 0; i < links.Length(); ++i) {
      const auto link = links.Get(i).As<Napi::Object>();
      comm::LinkSpec& made = spec.links.emplace_back();
      made.peer = static_cast<int>(number_field(link, "peer"));
      made.transport = transport_of(object.Env(), text_field(link, "transport"));
      made.host = text_field(link, "host");
      made.port = static_cast<uint16_t>(number_field(link, "port"));
    }
    return spec;
  }

  static std::unique_ptr<comm::DataPlane> open_plane(Core& core, const comm::EpochSpec& spec,
                                                     comm::GrpcBridge* bridge,
                                                     const std::atomic<bool>& abandon,
                                                     Opened& opened) {
    if (spec.links.empty()) return comm::make_solo_plane(spec.epoch);
    size_t over_grpc = 0;
    for (const comm::LinkSpec& link : spec.links) {
      if (link.transport == comm::TransportKind::kGrpc) ++over_grpc;
    }
    if (over_grpc == 0) return core.fabric->open(spec, abandon, &opened.reports);
    if (over_grpc < spec.links.size()) {
      throw EngineError("CONFIG_INVALID",
                        "links over grpc cannot be mixed with others in one epoch");
    }
    if (bridge == nullptr) {
      throw EngineError("CONFIG_INVALID", "grpc links need a listener for outgoing frames");
    }
    return comm::open_grpc(spec, *bridge, abandon, &opened.reports);
  }

  Napi::Value open_epoch(const Napi::CallbackInfo& info) {
    const std::shared_ptr<Core> core = loaded_core(info);
    const auto object = info[0].As<Napi::Object>();
    const comm::EpochSpec spec = epoch_spec(object);
    const auto first_step = static_cast<uint64_t>(number_field(object, "firstStep"));
    core->abandon->store(true);
    const auto abandon = std::make_shared<std::atomic<bool>>(false);
    core->abandon = abandon;
    const std::shared_ptr<comm::GrpcBridge> bridge = core->bridge;
    return AsyncTask<Opened>::start(
        info.Env(),
        [core, spec, first_step, bridge, abandon] {
          const auto check_abandoned = [&] {
            if (!abandon->load()) return;
            throw EngineError("EPOCH_FENCED", "epoch " + std::to_string(spec.epoch) +
                                                  " was fenced while it was opened");
          };
          const std::lock_guard opening(core->opening);
          check_abandoned();  // from here on close() waits for us; before, it may have been done
          core->engine->fence();
          Opened opened;
          std::unique_ptr<comm::DataPlane> plane =
              open_plane(*core, spec, bridge.get(), *abandon, opened);
          const std::lock_guard control(core->control);
          check_abandoned();
          core->engine->begin_epoch(std::move(plane), first_step);
          core->bridge_in_use = bridge;
          return opened;
        },
        [](Napi::Env env, Opened&& opened) {
          Napi::Array list = Napi::Array::New(env, opened.reports.size());
          for (size_t i = 0; i < opened.reports.size(); ++i) {
            const comm::LinkReport& report = opened.reports[i];
            Napi::Object link = Napi::Object::New(env);
            link.Set("peer", report.peer);
            link.Set("transport", comm::transport_name(report.transport));
            link.Set("interface", report.interface);
            link.Set("roundTripUs", report.round_trip_us);
            list.Set(static_cast<uint32_t>(i), link);
          }
          return Napi::Value(list);
        });
  }

  void submit(const Napi::CallbackInfo& info) {
    const std::shared_ptr<Core> core = loaded_core(info);
    const std::span<const std::byte> record = bytes_argument(info, 0);
    core->engine->submit({record.begin(), record.end()});
  }

  Napi::Value fence(const Napi::CallbackInfo& info) {
    const std::shared_ptr<Core> core = loaded_core(info);
    // Before the task gets a thread: an openEpoch under way must let go of it first.
    core->abandon->store(true);
    core->engine->fence_flag().store(true);
    return AsyncTask<bool>::start(
        info.Env(),
        [core] {
          const std::lock_guard control(core->control);
          if (core->engine) core->engine->fence();  // none after a close() that overtook this
          return true;
        },
        [](Napi::Env env, bool&&) { return env.Undefined(); });
  }

  Napi::Value progress(const Napi::CallbackInfo& info) {
    const std::shared_ptr<Core> core = loaded_core(info);
    const engine::Progress now = core->engine->progress();
    Napi::Object result = Napi::Object::New(info.Env());
    result.Set("epoch", static_cast<double>(now.epoch));
    result.Set("step", static_cast<double>(now.step));
    result.Set("item", static_cast<double>(now.item));
    result.Set("busy", now.busy);
    return result;
  }

  Napi::Value counters(const Napi::CallbackInfo& info) {
    const std::shared_ptr<Core> core = loaded_core(info);
    const comm::DataPlane::Counters now = core->engine->counters();
    Napi::Object result = Napi::Object::New(info.Env());
    result.Set("collectives", static_cast<double>(now.collectives));
    result.Set("bytesSent", static_cast<double>(now.bytes_sent));
    result.Set("bytesReceived", static_cast<double>(now.bytes_received));
    result.Set("waitNs", static_cast<double>(now.wait_ns));
    return result;
  }

  // Fresh ports for the links of the next epoch; frames may be delivered from now on.
  void grpc_begin(const Napi::CallbackInfo& info) {
    const std::shared_ptr<Core> core = open_core(info);
    // The bridge may outlive this object in a task, so it keeps the mailbox itself.
    struct Context {
      std::shared_ptr<Mailbox> mailbox;
      std::unique_ptr<comm::GrpcBridge> bridge;
    };
    auto context = std::make_shared<Context>();
    context->mailbox = mailbox_;
    context->bridge = comm::make_grpc_bridge(
        [](void* opaque, int peer, std::vector<std::byte> frame) {
          static_cast<Context*>(opaque)->mailbox->post(OutgoingGrpcFrame{peer, std::move(frame)});
        },
        context.get());
    core->bridge = std::shared_ptr<comm::GrpcBridge>(context, context->bridge.get());
  }

  // Frames and hang-ups that come after close() or before any epoch concern nobody.
  void grpc_deliver(const Napi::CallbackInfo& info) {
    const std::shared_ptr<Core> core = core_;
    if (!core || !core->bridge) return;
    const std::span<const std::byte> frame = bytes_argument(info, 1);
    guarded(info.Env(), [&] { core->bridge->port(peer_argument(info)).deliver(frame); });
  }

  void grpc_closed(const Napi::CallbackInfo& info) {
    const std::shared_ptr<Core> core = core_;
    if (!core || !core->bridge) return;
    const std::string reason = info.Length() > 1 ? info[1].ToString().Utf8Value() : "";
    guarded(info.Env(), [&] { core->bridge->port(peer_argument(info)).closed(reason); });
  }

  Napi::Value close(const Napi::CallbackInfo& info) {
    const std::shared_ptr<Core> core = std::move(core_);
    core_.reset();
    mailbox_->stop();
    if (!core) {
      Napi::Promise::Deferred done = Napi::Promise::Deferred::New(info.Env());
      done.Resolve(info.Env().Undefined());
      return done.Promise();
    }
    core->abandon->store(true);
    {
      const std::lock_guard lock(core->load);
      if (core->engine) core->engine->fence_flag().store(true);
    }
    return AsyncTask<bool>::start(
        info.Env(),
        [core] {
          const std::lock_guard opening(core->opening);
          const std::lock_guard control(core->control);
          core->engine.reset();
          core->fabric.reset();
          return true;
        },
        [](Napi::Env env, bool&&) { return env.Undefined(); });
  }

  std::shared_ptr<Mailbox> mailbox_;
  std::shared_ptr<Core> core_;
};

}  // namespace

void register_engine(Napi::Env env, Napi::Object exports) { NativeEngine::define(env, exports); }

}  // namespace coxswain::addon

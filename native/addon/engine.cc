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
#include "addon/engine_values.h"
#include "addon/js_values.h"
#include "addon/mailbox.h"
#include "addon/registry.h"
#include "base/clock.h"
#include "comm/comm.h"
#include "comm/fabric.h"
#include "engine/engine.h"

namespace coxswain::addon {
namespace {

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
  std::shared_ptr<engine::Engine> engine;           // transfers of pages hold it too
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

class NativeEngine : public Napi::ObjectWrap<NativeEngine> {
 public:
  static void define(Napi::Env env, Napi::Object exports) {
    const Napi::Function constructor =
        DefineClass(env, "NativeEngine",
                    {InstanceMethod<&NativeEngine::load>("load"),
                     InstanceMethod<&NativeEngine::open_epoch>("openEpoch"),
                     InstanceMethod<&NativeEngine::submit>("submit"),
                     InstanceMethod<&NativeEngine::save_pages>("savePages"),
                     InstanceMethod<&NativeEngine::load_pages>("loadPages"),
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
    const engine::EngineOptions options = to_engine_options(object);
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
          std::shared_ptr<engine::Engine> loaded = engine::Engine::load(
              options, [mailbox](engine::EngineEvent event) { mailbox->post(std::move(event)); });
          const std::lock_guard lock(core->load);
          core->fabric = std::move(fabric);
          core->engine = std::move(loaded);
          return Loaded{core->engine->info(), core->fabric->port()};
        },
        // Of the engine itself nothing: close() may have destroyed it since.
        [](Napi::Env env, Loaded&& loaded) { return facts_of(env, loaded.info, loaded.port); });
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
    const comm::EpochSpec spec = to_epoch_spec(object);
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
        [](Napi::Env env, Opened&& opened) { return links_of(env, opened.reports); });
  }

  void submit(const Napi::CallbackInfo& info) {
    const std::shared_ptr<Core> core = loaded_core(info);
    const std::span<const std::byte> record = bytes_argument(info, 0);
    core->engine->submit({record.begin(), record.end()});
  }

  // On a pool thread each, beside running steps. A fence ends them.
  Napi::Value save_pages(const Napi::CallbackInfo& info) {
    const std::shared_ptr<Core> core = loaded_core(info);
    return AsyncTask<engine::PageFile>::start(
        info.Env(),
        [running = core->engine, request = to_save_request(info[0].As<Napi::Object>())]() mutable {
          running->save_pages(request.epoch, request.file, request.blocks);
          return std::move(request.file);
        },
        [](Napi::Env env, engine::PageFile&& file) { return saved_pages_of(env, file); });
  }

  Napi::Value load_pages(const Napi::CallbackInfo& info) {
    const std::shared_ptr<Core> core = loaded_core(info);
    return AsyncTask<bool>::start(
        info.Env(),
        [running = core->engine, request = to_load_request(info[0].As<Napi::Object>())] {
          running->load_pages(request.epoch, request.file, request.box, request.blocks);
          return true;
        },
        [](Napi::Env env, bool&&) { return env.Undefined(); });
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
    return progress_of(info.Env(), core->engine->progress());
  }

  Napi::Value counters(const Napi::CallbackInfo& info) {
    const std::shared_ptr<Core> core = loaded_core(info);
    return counters_of(info.Env(), core->engine->counters());
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

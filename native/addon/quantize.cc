// quantize(options, onProgress) -> { done: Promise<result>, cancel() }: a model file into another.
// The objects' types: src/base/quantize.ts. With dryRun only the plan is made.
#include "quantize/quantize.h"

#include <sys/stat.h>

#include <atomic>
#include <memory>

#include "addon/async_task.h"
#include "addon/js_values.h"
#include "addon/registry.h"

namespace coxswain::addon {
namespace {

using quantize::QuantizePlan;
using weights::GgufFile;

struct Options {
  std::string path, type, out;
  bool pure, force, dry_run;
  int threads;
};

Options to_options(const Napi::Value& value) {
  if (!value.IsObject()) throw Napi::TypeError::New(value.Env(), "the options are an object");
  const Napi::Object object = value.As<Napi::Object>();
  const double threads = number_field(object, "threads");
  if (!(threads >= 1 && threads <= 1024)) {
    throw Napi::TypeError::New(value.Env(), "threads is a number from 1 to 1024");
  }
  return {text_field(object, "path"),     text_field(object, "type"),
          text_field(object, "out"),      boolean_field(object, "pure"),
          boolean_field(object, "force"), boolean_field(object, "dryRun"),
          static_cast<int>(threads)};
}

// Progress from the engine's threads to JavaScript. Few calls may wait; more are dropped, since
// each carries the whole state. Released by the last owner, so that it ends with the work.
class Reporter {
 public:
  Reporter(Napi::Env env, const Napi::Function& on_progress)
      : function_(Napi::ThreadSafeFunction::New(env, on_progress, "coxswain quantize", 4, 1)) {}
  ~Reporter() { function_.Release(); }
  Reporter(const Reporter&) = delete;
  Reporter& operator=(const Reporter&) = delete;

  void report(uint64_t done, uint64_t total) {
    function_.NonBlockingCall([done, total](Napi::Env env, Napi::Function on_progress) {
      if (env == nullptr) return;
      on_progress.Call({Napi::Number::New(env, static_cast<double>(done)),
                        Napi::Number::New(env, static_cast<double>(total))});
    });
  }

 private:
  Napi::ThreadSafeFunction function_;
};

// A model over itself would read what it is about to replace.
void refuse_own_path(const Options& options) {
  struct stat model{};
  struct stat out{};
  if (stat(options.path.c_str(), &model) != 0 || stat(options.out.c_str(), &out) != 0) return;
  if (model.st_dev == out.st_dev && model.st_ino == out.st_ino) {
    throw EngineError("USAGE_INVALID", "OUT is the model itself; choose another path");
  }
}

QuantizePlan carry_out(const Options& options, Reporter& reporter,
                       const std::atomic<bool>& cancelled) {
  const quantize::Scheme& scheme = quantize::scheme_named(options.type);
  const std::shared_ptr<const GgufFile> file = GgufFile::open(options.path);
  QuantizePlan plan = quantize::plan_quantization(*file, scheme, options.pure);
  if (options.dry_run) return plan;
  refuse_own_path(options);
  quantize::run_quantization(
      *file, plan,
      {options.out, options.force, options.threads,
       [&reporter](uint64_t done, uint64_t total) { reporter.report(done, total); }, &cancelled});
  return plan;
}

Napi::Value plan_object(Napi::Env env, const QuantizePlan& plan) {
  const auto count = [env](uint64_t value) {
    return Napi::Number::New(env, static_cast<double>(value));
  };
  Napi::Array tensors = Napi::Array::New(env, plan.steps.size());
  uint32_t index = 0;
  for (const quantize::TensorStep& step : plan.steps) {
    const Napi::HandleScope scope(env);
    Napi::Array dims = Napi::Array::New(env);
    for (int i = 0; i < step.target.dim_count; ++i) {
      dims.Set(static_cast<uint32_t>(i),
               count(static_cast<uint64_t>(step.target.dims[static_cast<size_t>(i)])));
    }
    Napi::Object object = Napi::Object::New(env);
    object.Set("name", to_js_text(env, step.target.name));
    object.Set("dims", dims);
    object.Set("from", Napi::String::New(env, std::string(traits_of(step.from).name)));
    object.Set("to", Napi::String::New(env, std::string(traits_of(step.target.type).name)));
    object.Set("from_bytes", count(step.from_bytes));
    object.Set("bytes", count(step.target.bytes));
    object.Set("note", Napi::String::New(env, step.note));
    tensors.Set(index++, object);
  }
  Napi::Object object = Napi::Object::New(env);
  object.Set("file_bytes", count(plan.layout.file_bytes));
  object.Set("requantizes", Napi::Boolean::New(env, plan.requantizes));
  object.Set("tensors", tensors);
  return object;
}

Napi::Value start(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  if (info.Length() < 2 || !info[1].IsFunction()) {
    throw Napi::TypeError::New(env, "quantize takes options and a progress function");
  }
  const Options options = to_options(info[0]);
  auto reporter = std::make_shared<Reporter>(env, info[1].As<Napi::Function>());
  auto cancelled = std::make_shared<std::atomic<bool>>(false);
  Napi::Object job = Napi::Object::New(env);
  job.Set(
      "done",
      AsyncTask<QuantizePlan>::start(
          env, [options, reporter, cancelled] { return carry_out(options, *reporter, *cancelled); },
          [](Napi::Env at, QuantizePlan&& plan) { return plan_object(at, plan); }));
  job.Set("cancel",
          Napi::Function::New(
              env, [cancelled](const Napi::CallbackInfo&) { *cancelled = true; }, "cancel"));
  return job;
}

}  // namespace

void register_quantize(Napi::Env env, Napi::Object exports) {
  exports.Set("quantize", Napi::Function::New(env, start, "quantize"));
}

}  // namespace coxswain::addon

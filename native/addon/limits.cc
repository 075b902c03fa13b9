// What this machine can do at most, for the commands that measure: native/limits behind a promise.
#include "limits/limits.h"

#include <napi.h>

#include "addon/async_task.h"
#include "addon/registry.h"

namespace coxswain::addon {
namespace {

void set_peak(Napi::Env env, Napi::Object object, const char* name, const limits::Peak& peak) {
  if (peak.per_second == 0) {
    object.Set(name, env.Null());
    return;
  }
  Napi::Object value = Napi::Object::New(env);
  value.Set("opsPerSecond", peak.per_second);
  value.Set("instruction", peak.instruction);
  object.Set(name, value);
}

Napi::Value to_js(Napi::Env env, limits::Limits&& found) {
  Napi::Object result = Napi::Object::New(env);
  result.Set("threads", found.threads);
  result.Set("readBytesPerSecond", found.read_bytes_per_second);
  set_peak(env, result, "int8", found.int8);
  set_peak(env, result, "bf16", found.bf16);
  set_peak(env, result, "f32", found.f32);
  return result;
}

// measureLimits(threads) -> Promise<MachineLimits>. MEMORY_EXHAUSTED.
Napi::Value measure_limits(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  const int threads = info[0].IsNumber() ? info[0].As<Napi::Number>().Int32Value() : 0;
  if (threads < 1 || threads > limits::kThreadsMax) {
    throw Napi::TypeError::New(env, "threads must be a whole number from 1");
  }
  return AsyncTask<limits::Limits>::start(
      env, [threads] { return limits::measure(threads); }, to_js);
}

}  // namespace

void register_limits(Napi::Env env, Napi::Object exports) {
  exports.Set("measureLimits", Napi::Function::New(env, measure_limits, "measureLimits"));
}

}  // namespace coxswain::addon

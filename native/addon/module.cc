// The addon's entry. Loaded by src/base/addon.ts only; no state of its own, so that several threads
// of one process may load it.
#include <napi.h>

#include "addon/registry.h"

namespace {

Napi::Object initialise(Napi::Env env, Napi::Object exports) {
  coxswain::addon::register_inspect(env, exports);
  coxswain::addon::register_engine(env, exports);
  coxswain::addon::register_host(env, exports);
  coxswain::addon::register_limits(env, exports);
  coxswain::addon::register_lock(env, exports);
  coxswain::addon::register_quantize(env, exports);
  return exports;
}

}  // namespace

NODE_API_MODULE(coxswain, initialise)

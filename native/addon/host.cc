// What the engine sees of this host: the instruction set it would use, and those the CPU has.
#include <napi.h>

#include <array>

#include "addon/errors.h"
#include "addon/registry.h"
#include "kernels/kernels.h"

namespace coxswain::addon {
namespace {

// host() -> { isa: string, available: string[] }. ISA_UNAVAILABLE when COX_ISA asks for the
// impossible.
Napi::Value host(const Napi::CallbackInfo& info) {
  using kernels::Isa;
  Napi::Env env = info.Env();
  return guarded(env, [env]() -> Napi::Value {
    Napi::Array available = Napi::Array::New(env);
    for (const Isa isa : std::array{Isa::kScalar, Isa::kNeon, Isa::kAvx2, Isa::kAvx512}) {
      if (kernels::isa_available(isa)) available.Set(available.Length(), kernels::isa_name(isa));
    }
    Napi::Object result = Napi::Object::New(env);
    result.Set("isa", kernels::isa_name(kernels::choose_isa()));
    result.Set("available", available);
    return result;
  });
}

}  // namespace

void register_host(Napi::Env env, Napi::Object exports) {
  exports.Set("host", Napi::Function::New(env, host, "host"));
}

}  // namespace coxswain::addon

// lockDirectory(path) -> release(): the lock is held until release() or the end of the process.
#include "addon/errors.h"
#include "addon/registry.h"
#include "base/directory_lock.h"

namespace coxswain::addon {
namespace {

Napi::Value lock_directory(const Napi::CallbackInfo& info) {
  Napi::Env env = info.Env();
  if (info.Length() < 1 || !info[0].IsString()) {
    throw Napi::TypeError::New(env, "lockDirectory(path)");
  }
  return guarded(env, [&]() -> Napi::Value {
    auto lock = std::make_shared<std::unique_ptr<DirectoryLock>>(
        std::make_unique<DirectoryLock>(info[0].As<Napi::String>().Utf8Value()));
    return Napi::Function::New(
        env, [lock](const Napi::CallbackInfo&) { lock->reset(); }, "release");
  });
}

}  // namespace

void register_lock(Napi::Env env, Napi::Object exports) {
  exports.Set("lockDirectory", Napi::Function::New(env, lock_directory, "lockDirectory"));
}

}  // namespace coxswain::addon

// What each file of the addon adds to the module's exports.
#pragma once
#include <napi.h>

namespace coxswain::addon {

void register_inspect(Napi::Env env, Napi::Object exports);   // inspect.cc
void register_engine(Napi::Env env, Napi::Object exports);    // engine.cc
void register_host(Napi::Env env, Napi::Object exports);      // host.cc
void register_limits(Napi::Env env, Napi::Object exports);    // limits.cc
void register_lock(Napi::Env env, Napi::Object exports);      // lock.cc
void register_quantize(Napi::Env env, Napi::Object exports);  // quantize.cc

}  // namespace coxswain::addon

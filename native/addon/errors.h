// EngineError -> JavaScript Error with a `code` property: the one place where C++ failures change
// language. src/base/errors.ts turns them into CoxswainErrors.
#pragma once
#include <napi.h>

#include <exception>
#include <new>
#include <string>

#include "base/error.h"

namespace coxswain::addon {

struct Failure {
  std::string code, message;
};

// What the exception being handled means to JavaScript. Call it inside a catch block.
inline Failure current_failure() {
  try {
    throw;
  } catch (const EngineError& error) {
    return {error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {"MEMORY_EXHAUSTED", "this process is out of memory"};
  } catch (const std::exception& error) {
    return {"INTERNAL", error.what()};
  }
}

inline Napi::Error to_js_error(Napi::Env env, const Failure& failure) {
  Napi::Error error = Napi::Error::New(env, failure.message);
  error.Set("code", Napi::String::New(env, failure.code));
  return error;
}

// Runs a synchronous export: JavaScript exceptions pass, C++ ones are translated.
template <typename Body>
auto guarded(Napi::Env env, Body&& body) {
  try {
    return body();
  } catch (const Napi::Error&) {
    throw;
  } catch (...) {
    throw to_js_error(env, current_failure());
  }
}

}  // namespace coxswain::addon

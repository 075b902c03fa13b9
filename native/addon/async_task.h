// Slow work off the JavaScript thread: a promise that settles with what a function returns.
#pragma once
#include <napi.h>

#include <functional>
#include <optional>
#include <utility>

#include "addon/errors.h"

namespace coxswain::addon {

template <typename Result>
class AsyncTask : public Napi::AsyncWorker {
 public:
  using Work = std::function<Result()>;                             // on a pool thread, no Napi
  using Convert = std::function<Napi::Value(Napi::Env, Result&&)>;  // on the JavaScript thread

  static Napi::Promise start(Napi::Env env, Work work, Convert convert) {
    auto* task = new AsyncTask(env, std::move(work), std::move(convert));  // deletes itself
    const Napi::Promise promise = task->deferred_.Promise();
    task->Queue();
    return promise;
  }

 protected:
  void Execute() override {
    try {
      result_.emplace(work_());
    } catch (...) {
      failure_ = current_failure();
    }
  }

  void OnOK() override {
    const Napi::HandleScope scope(Env());
    if (!failure_) {
      try {
        deferred_.Resolve(convert_(Env(), std::move(*result_)));
        return;
      } catch (const Napi::Error& error) {
        deferred_.Reject(error.Value());
        return;
      } catch (...) {
        failure_ = current_failure();
      }
    }
    deferred_.Reject(to_js_error(Env(), *failure_).Value());
  }

 private:
  AsyncTask(Napi::Env env, Work work, Convert convert)
      : Napi::AsyncWorker(env),
        deferred_(Napi::Promise::Deferred::New(env)),
        work_(std::move(work)),
        convert_(std::move(convert)) {}

  Napi::Promise::Deferred deferred_;
  Work work_;
  Convert convert_;
  std::optional<Result> result_;
  std::optional<Failure> failure_;
};

}  // namespace coxswain::addon

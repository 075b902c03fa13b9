// The two kinds of failure. An *expected* failure (bad file, lost peer, impossible plan) is an
// EngineError with a code of src/base/error-codes.ts; it is caught only in addon/ and becomes a
// CoxswainError there. A *bug* is a COX_CHECK: it prints the fact and aborts; the supervisor
// restarts.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

namespace coxswain {

class EngineError : public std::runtime_error {
 public:
  // `code` is a name of the table in src/base/error-codes.ts, e.g. "GGUF_INVALID".
  EngineError(std::string code, const std::string& message)
      : std::runtime_error(message), code_(std::move(code)) {}
  const std::string& code() const { return code_; }

 private:
  std::string code_;
};

[[noreturn]] inline void check_failed(const char* file, int line, const char* condition,
                                      const char* fact) {
  std::fprintf(stderr, "coxswain: broken invariant at %s:%d: %s (%s)\n", file, line, fact,
               condition);
  std::abort();
}

}  // namespace coxswain

#define COX_CHECK(condition, fact)                                                    \
  do {                                                                                \
    if (!(condition)) ::coxswain::check_failed(__FILE__, __LINE__, #condition, fact); \
  } while (false)

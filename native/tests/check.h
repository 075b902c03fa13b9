// The few lines every native test program needs: CHECK prints and counts failures, `finish` ends
// with the line that tests/native/ctest.test.ts reads ("N passed, N failed").
#pragma once
#include <atomic>
#include <cstdio>

namespace coxswain::testing {
// Atomic: checks are also made on threads of a test.
inline std::atomic<int> passed = 0;
inline std::atomic<int> failed = 0;

inline bool check(bool ok, const char* file, int line, const char* what) {
  if (ok) {
    ++passed;
  } else {
    ++failed;
    std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
  }
  return ok;
}

inline int finish(const char* program) {
  std::printf("%s: %d passed, %d failed\n", program, passed.load(), failed.load());
  return failed == 0 ? 0 : 1;
}
}  // namespace coxswain::testing

#define CHECK(condition) ::coxswain::testing::check((condition), __FILE__, __LINE__, #condition)

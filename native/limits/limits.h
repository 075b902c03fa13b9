// What this machine can do at most: bytes read a second from memory, int8, bf16 and f32 operations
// a second, measured now, with a given number of threads. Beside these figures a rate has a reason.
// A limit is the best of several loops: nothing here is what an engine does, everything is what the
// machine allows. Two operations are one multiplication and one addition.
#pragma once
#include <cstddef>
#include <cstdint>

namespace coxswain::limits {

// The loop that read fastest.
struct ReadLoop {
  int streams = 0;         // places read in turn by each thread
  size_t ahead_bytes = 0;  // how far before use a line is asked for; 0: not at all
  bool huge_pages = false;
};

struct Peak {
  double per_second = 0;         // operations; 0: this CPU (or build) has no such instruction
  const char* instruction = "";  // what was run
};

struct Limits {
  int threads = 0;
  size_t read_buffer_bytes = 0;  // all threads together, beyond every cache
  double read_bytes_per_second = 0;
  ReadLoop read_loop;
  Peak int8, bf16, f32;
};

inline constexpr int kThreadsMax = 1024;

// Takes one to two seconds and read_buffer_bytes (256 MiB or more) of memory. `threads` from 1 to
// kThreadsMax; they should have that many cores to themselves. MEMORY_EXHAUSTED.
Limits measure(int threads);

}  // namespace coxswain::limits

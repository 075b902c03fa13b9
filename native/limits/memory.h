// The read bandwidth of this machine: the best of loops that differ in streams, in how far ahead
// lines are asked for, and in the size of pages.
#pragma once
#include <cstddef>

#include "limits/limits.h"

namespace coxswain::limits {

struct ReadResult {
  double bytes_per_second;
  ReadLoop loop;
};

// 64 MiB a thread, at least 256 MiB: beyond what the last-level caches near these cores hold.
size_t read_buffer_bytes(int threads);

// Reads `bytes` (a multiple of 1 MiB) shared out among the threads, with every loop.
ReadResult measure_reading(int threads, size_t bytes);

}  // namespace coxswain::limits

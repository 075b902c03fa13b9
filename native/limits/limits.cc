#include "limits/limits.h"

#include "base/error.h"
#include "limits/arithmetic.h"
#include "limits/memory.h"

namespace coxswain::limits {

Limits measure(int threads) {
  COX_CHECK(threads >= 1 && threads <= kThreadsMax, "the number of threads is checked by callers");
  Limits limits;
  limits.threads = threads;
  limits.read_buffer_bytes = read_buffer_bytes(threads);
  const ReadResult reading = measure_reading(threads, limits.read_buffer_bytes);
  limits.read_bytes_per_second = reading.bytes_per_second;
  limits.read_loop = reading.loop;
  limits.int8 = measure_peak(Kind::kInt8, threads);
  limits.bf16 = measure_peak(Kind::kBf16, threads);
  limits.f32 = measure_peak(Kind::kF32, threads);
  return limits;
}

}  // namespace coxswain::limits

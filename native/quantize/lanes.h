// Four floats at once by the compiler's vector types, for every processor alike.
//
// Each operation is one IEEE operation a lane, nothing is contracted (see native/CMakeLists.txt),
// and sums have one written order, so that a block's bytes are the same on every instruction set.
#pragma once
#include <cstdint>
#include <cstring>

namespace coxswain::quantize {

using Lanes = float __attribute__((vector_size(16)));
inline constexpr int kLanes = 4;

inline Lanes spread(float value) { return Lanes{value, value, value, value}; }
inline Lanes load(const float* p) {
  Lanes lanes;
  std::memcpy(&lanes, p, sizeof lanes);
  return lanes;
}
inline void store(Lanes lanes, float* p) { std::memcpy(p, &lanes, sizeof lanes); }
inline float sum_of(Lanes lanes) { return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]); }
inline Lanes at_least(Lanes lanes, Lanes low) { return lanes > low ? lanes : low; }
inline Lanes at_most(Lanes lanes, Lanes high) { return lanes < high ? lanes : high; }

// Half to even; |lane| < 2^22. Adding 1.5 * 2^23 leaves no fraction bits.
inline Lanes nearest(Lanes lanes) {
  const Lanes shift = spread(12582912.0f);
  return (lanes + shift) - shift;
}
inline float nearest(float value) { return (value + 12582912.0f) - 12582912.0f; }

}  // namespace coxswain::quantize

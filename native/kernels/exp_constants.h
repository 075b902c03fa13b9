// The constants of the float exp, shared by the scalar function and the vector versions.
// exp x = 2^n * exp r, n = rint(x / ln 2), r = x - n ln 2 in two fma; exp r by its Taylor series to
// r^7
// (|r| <= 0.347: the next term is below 2^-27 of the value). 2^n is applied as two factors, so that
// subnormal results round once.
#pragma once
#include <cstdint>

namespace coxswain::kernels {

inline constexpr float kExpMax = 89.0f;    // exp overflows to infinity here
inline constexpr float kExpMin = -104.0f;  // exp rounds to zero here
inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kMinusLn2Hi = -0x1.62e430p-1f;
inline constexpr float kMinusLn2Lo = 0x1.05c610p-29f;
inline constexpr float kRoundShift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
inline constexpr uint32_t kRoundShiftBits = 0x4b400000u;
inline constexpr int kExpTermCount = 8;
inline constexpr float kExpTerms[kExpTermCount] = {
    1.0f / 5040.0f, 1.0f / 720.0f, 1.0f / 120.0f, 1.0f / 24.0f, 1.0f / 6.0f, 0.5f, 1.0f, 1.0f};

}  // namespace coxswain::kernels

// The value tables behind the codebook types: what a 4-bit code stands for.
//
// Every codebook type of this engine has at most 16 signed values, so that it packs to 4 bits:
// IQ2 three magnitudes (codes 0-2 positive, 4-6 negative: 3 bits), IQ3 eight (0-7 positive, 8-15
// negative), IQ4 and MXFP4 sixteen values of their own. The grids (codebook_data.cc) hold magnitude
// numbers.
#pragma once
#include <cstdint>

namespace coxswain::kernels {

inline constexpr int8_t kIq2Values[16] = {8, 25, 43, 0, -8, -25, -43, 0, 0, 0, 0, 0, 0, 0, 0, 0};
inline constexpr int8_t kIq3XxsValues[16] = {4,  12,  20,  28,  36,  44,  52,  62,
                                             -4, -12, -20, -28, -36, -44, -52, -62};
inline constexpr int8_t kIq3SValues[16] = {1,  3,  5,  7,  9,  11,  13,  15,
                                           -1, -3, -5, -7, -9, -11, -13, -15};
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
// Doubled E2M1: the block's factor is therefore half of its E8M0 scale.
inline constexpr int8_t kMxfp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

enum class Codebook { kNone, kIq2, kIq3Xxs, kIq3S, kIq4, kMxfp4 };

constexpr int8_t codebook_value(Codebook codebook, int code) {
  switch (codebook) {
    case Codebook::kNone:
      break;
    case Codebook::kIq2:
      return kIq2Values[code];
    case Codebook::kIq3Xxs:
      return kIq3XxsValues[code];
    case Codebook::kIq3S:
      return kIq3SValues[code];
    case Codebook::kIq4:
      return kIq4Values[code];
    case Codebook::kMxfp4:
      return kMxfp4Values[code];
  }
  return 0;
}

extern const uint16_t kIq2XxsGrid[256];
extern const uint16_t kIq2XsGrid[512];
extern const uint16_t kIq2SGrid[1024];
extern const uint16_t kIq3XxsGrid[256];
extern const uint16_t kIq3SGrid[512];

}  // namespace coxswain::kernels

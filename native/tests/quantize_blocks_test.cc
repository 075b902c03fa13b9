// Blocks of every target type: the plain types against a second writing of their rounding, byte for
// byte; the searched types against a plain rounding in double, by weighted error; all of them on
// odd blocks.
#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/sha256.h"
#include "kernels/kernels.h"
#include "quantize/blocks.h"
#include "tests/check.h"
#include "tests/kernels_support.h"

namespace {

using namespace coxswain;
using testing::Random;
using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

constexpr TensorType kTargets[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBF16,
                                   TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ4_1,
                                   TensorType::kQ5_0, TensorType::kQ5_1, TensorType::kQ4_K,
                                   TensorType::kQ5_K, TensorType::kQ6_K};

Bytes encoded(TensorType type, const Floats& x) {
  Bytes bytes(row_bytes(type, static_cast<int64_t>(x.size())));
  quantize::quantize_blocks(type, x.data(), static_cast<int64_t>(x.size()), bytes.data());
  return bytes;
}

Floats decoded(TensorType type, const Bytes& bytes, size_t count) {
  Floats y(count);
  kernels::dequantize_row(type, bytes.data(), 0, static_cast<int64_t>(count), y.data());
  return y;
}

Floats there_and_back(TensorType type, const Floats& x) {
  return decoded(type, encoded(type, x), x.size());
}

// --- the plain types -----------------------------------------------------------------------------

void append_half(Bytes& out, float value) {
  const uint16_t bits = f32_to_f16(value);
  out.push_back(static_cast<uint8_t>(bits & 255));
  out.push_back(static_cast<uint8_t>(bits >> 8));
}

// bits 4 or 5; with a minimum the codes count from it, without from the middle.
Bytes plain_block(const float* x, int bits, bool minimum) {
  const float least = *std::min_element(x, x + 32);
  const float most = *std::max_element(x, x + 32);
  const float far =
      *std::max_element(x, x + 32, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const int middle = 1 << (bits - 1);
  const int top = 2 * middle - 1;
  const float d =
      minimum ? (most - least) / static_cast<float>(top) : far / static_cast<float>(-middle);
  const float inverse = d == 0.0f ? 0.0f : 1.0f / d;
  const float start = minimum ? 0.5f : static_cast<float>(middle) + 0.5f;
  int code[32];
  for (int j = 0; j < 32; ++j) {
    const float distance = minimum ? x[j] - least : x[j];
    code[j] = std::min(top, static_cast<int>(distance * inverse + start));
  }
  Bytes out;
  append_half(out, d);
  if (minimum) append_half(out, least);
  for (int byte = 0; bits == 5 && byte < 4; ++byte) {
    int fifth = 0;
    for (int bit = 0; bit < 8; ++bit) fifth |= (code[8 * byte + bit] >> 4) << bit;
    out.push_back(static_cast<uint8_t>(fifth));
  }
  for (int j = 0; j < 16; ++j) {
    out.push_back(static_cast<uint8_t>((code[j] & 15) + 16 * (code[j + 16] & 15)));
  }
  return out;
}

Bytes plain_q8_0(const float* x) {
  float far = 0.0f;
  for (int j = 0; j < 32; ++j) far = std::max(far, std::fabs(x[j]));
  const float d = far / 127.0f;
  const float inverse = d == 0.0f ? 0.0f : 1.0f / d;
  Bytes out;
  append_half(out, d);
  for (int j = 0; j < 32; ++j) {
    out.push_back(static_cast<uint8_t>(static_cast<int>(std::round(x[j] * inverse))));
  }
  return out;
}

Bytes plain(TensorType type, const float* x) {
  switch (type) {
    case TensorType::kQ8_0:
      return plain_q8_0(x);
    case TensorType::kQ4_0:
      return plain_block(x, 4, false);
    case TensorType::kQ4_1:
      return plain_block(x, 4, true);
    case TensorType::kQ5_0:
      return plain_block(x, 5, false);
    default:
      return plain_block(x, 5, true);
  }
}

void check_plain_types() {
  Random random(11);
  for (const TensorType type : {TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ4_1,
                                TensorType::kQ5_0, TensorType::kQ5_1}) {
    int different = 0;
    for (int block = 0; block < 400; ++block) {
      Floats x = testing::random_floats(32, random);
      if (block % 5 == 1) std::fill(x.begin(), x.end(), x[0]);
      if (block % 5 == 2) std::fill(x.begin() + 1, x.end(), 0.0f);
      // Values half-way between two codes: multiples of half the step.
      if (block % 5 == 3) {
        for (float& v : x) v = static_cast<float>(random.below(255) - 127) * 0.5f;
      }
      if (block % 5 == 4) {
        for (float& v : x) v = std::fabs(v) * 1e-3f + 5.0f;
      }
      if (encoded(type, x) != plain(type, x.data())) ++different;
    }
    if (!CHECK(different == 0))
      std::fprintf(stderr, "  %s: %d\n", traits_of(type).name.data(), different);
  }
}

// 16-bit floats: no neighbour is nearer, and of two equally near ones the even one is taken.
void check_halves() {
  Random random(12);
  for (const TensorType type : {TensorType::kF16, TensorType::kBF16}) {
    const auto value = [type](int bits) {
      const uint16_t b = static_cast<uint16_t>(bits);
      return static_cast<double>(type == TensorType::kF16 ? f16_to_f32(b) : bf16_to_f32(b));
    };
    int wrong = 0;
    for (int i = 0; i < 20'000; ++i) {
      float x =
          std::fabs(random.normal()) * std::exp2(static_cast<float>(random.below(24)) - 20.0f);
      const int low = static_cast<int>(random.below(0x7000));
      if (i % 4 == 0) x = static_cast<float>((value(low) + value(low + 1)) / 2.0);  // a tie
      const Bytes bytes = encoded(type, {x});
      const int bits = bytes[0] | (bytes[1] << 8);
      const double error = std::fabs(value(bits) - static_cast<double>(x));
      for (const int other : {bits - 1, bits + 1}) {
        if (other < 0) continue;
        const double rival = std::fabs(value(other) - static_cast<double>(x));
        if (rival < error || (rival == error && bits % 2 != 0)) ++wrong;
      }
    }
    CHECK(wrong == 0);
  }
}

// --- the searched types --------------------------------------------------------------------------

double weighted_error(const Floats& x, const Floats& y, bool squares) {
  double total = 0.0;
  for (size_t begin = 0; begin < x.size(); begin += 32) {
    double power = 0.0;
    for (size_t i = begin; i < begin + 32; ++i)
      power += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    for (size_t i = begin; i < begin + 32; ++i) {
      const double v = static_cast<double>(x[i]);
      const double weight = squares ? v * v : std::fabs(v) + std::sqrt(power / 32.0);
      total += weight * (v - static_cast<double>(y[i])) * (v - static_cast<double>(y[i]));
    }
  }
  return total;
}

// Plain rounding in double of pieces of `width` columns: the step from the range (or the farthest
// value), scales and minima rounded to their integers under a super-scale that nothing rounds.
Floats plain_super_block(const Floats& x, int width, int most, bool minimum) {
  const size_t pieces = x.size() / static_cast<size_t>(width);
  std::vector<double> step(pieces), low(pieces);
  for (size_t p = 0; p < pieces; ++p) {
    const float* part = x.data() + p * static_cast<size_t>(width);
    const auto [least, largest] = std::minmax_element(part, part + width);
    if (minimum) {
      low[p] = std::max(0.0, -static_cast<double>(*least));
      step[p] = (static_cast<double>(*largest) + low[p]) / most;
    } else {
      step[p] = static_cast<double>(std::max(std::fabs(*least), std::fabs(*largest))) / most;
    }
  }
  const double scales = minimum ? 63.0 : 127.0;
  const double d = *std::max_element(step.begin(), step.end()) / scales;
  const double dmin = *std::max_element(low.begin(), low.end()) / scales;
  Floats y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t p = i / static_cast<size_t>(width);
    const double s = d * std::round(step[p] / d);
    const double m = dmin > 0.0 ? dmin * std::round(low[p] / dmin) : 0.0;
    const double code =
        std::clamp(s > 0.0 ? std::round((static_cast<double>(x[i]) + m) / s) : 0.0,
                   minimum ? 0.0 : -static_cast<double>(most), static_cast<double>(most));
    y[i] = static_cast<float>(s * code - m);
  }
  return y;
}

struct Searched {
  TensorType type;
  int width, most;
  bool minimum;
  double share;     // of the plain rounding's weighted error that may remain, on normal weights
  double relative;  // root mean square error / root mean square
};
constexpr Searched kSearched[] = {{TensorType::kQ4_K, 32, 15, true, 0.84, 0.075},
                                  {TensorType::kQ5_K, 32, 31, true, 0.85, 0.038},
                                  {TensorType::kQ6_K, 16, 31, false, 0.92, 0.021}};

void check_searched_types() {
  for (const Searched& of : kSearched) {
    Random random(13);
    double ours = 0.0;
    double theirs = 0.0;
    double squares = 0.0;
    double power = 0.0;
    for (int block = 0; block < 300; ++block) {
      Floats x = testing::random_floats(256, random);
      const float size = std::exp2(static_cast<float>(random.below(10)) - 9.0f);
      for (float& v : x) v *= size;
      const Floats y = there_and_back(of.type, x);
      ours += weighted_error(x, y, !of.minimum) / static_cast<double>(size * size * size);
      theirs +=
          weighted_error(x, plain_super_block(x, of.width, of.most, of.minimum), !of.minimum) /
          static_cast<double>(size * size * size);
      for (size_t i = 0; i < x.size(); ++i) {
        const double error = static_cast<double>(x[i] - y[i]) / static_cast<double>(size);
        squares += error * error;
        power += static_cast<double>(x[i] * x[i]) / static_cast<double>(size * size);
      }
    }
    const double share = ours / theirs;
    const double relative = std::sqrt(squares / power);
    if (!CHECK(share < of.share) || !CHECK(relative < of.relative)) {
      std::fprintf(stderr, "  %s: share %.4f, relative %.4f\n", traits_of(of.type).name.data(),
                   share, relative);
    }
  }
}

// What a type can express exactly must come back: codes 0..most under one power-of-two scale.
void check_exact_grids() {
  Random random(14);
  for (const Searched& of : kSearched) {
    Floats x(256);
    for (size_t i = 0; i < x.size(); ++i) {
      const int64_t code =
          of.minimum ? random.below(of.most + 1) : random.below(2 * of.most + 2) - of.most - 1;
      x[i] = static_cast<float>(code) * 0.0625f;
      // Every piece uses its whole range, as a piece of real weights does.
      if (i % static_cast<size_t>(of.width) == 0)
        x[i] = of.minimum ? 0.0f : -0.0625f * static_cast<float>(of.most + 1);
      if (i % static_cast<size_t>(of.width) == 1) x[i] = 0.0625f * static_cast<float>(of.most);
    }
    const Floats y = there_and_back(of.type, x);
    double worst = 0.0;
    for (size_t i = 0; i < x.size(); ++i)
      worst = std::max(worst, static_cast<double>(std::fabs(x[i] - y[i])));
    // The super-scale itself is rounded to 11 bits.
    if (!CHECK(worst <= 0.0625 * of.most / 2048.0 * 1.01)) std::fprintf(stderr, "  %g\n", worst);
  }
}

// --- all types -----------------------------------------------------------------------------------

// Largest error allowed in units of the block's largest magnitude.
double bound_of(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return 0.0;
    case TensorType::kF16:
      return 1.0 / 2048;
    case TensorType::kBF16:
      return 1.0 / 256;
    case TensorType::kQ8_0:
      return 0.51 / 127;
    case TensorType::kQ4_0:
      return 1.01 / 8;  // a value opposite to the farthest is cut at code 15
    case TensorType::kQ5_0:
      return 1.01 / 16;
    case TensorType::kQ4_1:
      return 1.02 / 15;
    case TensorType::kQ5_1:
      return 1.02 / 31;
    case TensorType::kQ4_K:
      return 0.2;
    case TensorType::kQ5_K:
      return 0.1;
    default:
      return 0.06;
  }
}

Floats odd_block(int kind, Random& random) {
  Floats x(256, 0.0f);
  for (float& v : x) {
    const float r = random.normal();
    v = kind == 1   ? 1.0f
        : kind == 2 ? -1.0f
        : kind == 3 ? std::fabs(r)
        : kind == 4 ? -std::fabs(r)
        : kind == 5 ? 65504.0f * random.unit()
        : kind == 6 ? 0.0f
        : kind == 7 ? r * 1e-3f
                    : r;
  }
  if (kind == 6) x[77] = 3.0f;
  if (kind == 7) x[200] = -10.0f;
  return kind == 0 ? Floats(256, 0.0f) : x;
}

void check_odd_blocks() {
  Random random(15);
  for (const TensorType type : kTargets) {
    for (int kind = 0; kind <= 8; ++kind) {
      const Floats x = odd_block(kind, random);
      const Floats y = there_and_back(type, x);
      double largest = 0.0;
      double worst = 0.0;
      for (size_t i = 0; i < x.size(); ++i) {
        largest = std::max(largest, static_cast<double>(std::fabs(x[i])));
        worst = std::max(worst, std::fabs(static_cast<double>(x[i]) - static_cast<double>(y[i])));
      }
      if (!CHECK(worst <= bound_of(type) * largest)) {
        std::fprintf(stderr, "  %s kind %d: %g of %g\n", traits_of(type).name.data(), kind, worst,
                     largest);
      }
    }
    // Too small for an f16 scale: zero or nearly so, never infinite.
    for (const float tiny : {1e-45f, 1e-38f, 1e-25f, 1e-9f}) {
      Floats x(256);
      for (float& v : x) v = tiny * random.normal();
      for (const float v : there_and_back(type, x)) CHECK(std::fabs(v) <= 1e-6f);
    }
  }
}

// A block does not depend on its neighbours.
void check_independence() {
  Random random(16);
  for (const TensorType type : kTargets) {
    const Floats two = testing::random_floats(512, random);
    const Bytes together = encoded(type, two);
    Bytes apart = encoded(type, Floats(two.begin(), two.begin() + 256));
    const Bytes second = encoded(type, Floats(two.begin() + 256, two.end()));
    apart.insert(apart.end(), second.begin(), second.end());
    CHECK(together == apart);
  }
}

// The bytes of every type over the same floats: equal on every processor that runs this.
void check_digest() {
  Random random(17);
  Bytes all;
  for (const TensorType type : kTargets) {
    Floats x = testing::random_floats(256 * 200, random);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] *= std::exp2(static_cast<float>(i / 256 % 30) - 25.0f);
    const Bytes bytes = encoded(type, x);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  const std::string digest = hex(sha256(std::as_bytes(std::span(all))));
  if (!CHECK(digest.starts_with("d77b2f300a85d95d")))
    std::fprintf(stderr, "  %s\n", digest.c_str());
}

}  // namespace

int main() {
  check_plain_types();
  check_halves();
  check_searched_types();
  check_exact_grids();
  check_odd_blocks();
  check_independence();
  check_digest();
  return testing::finish("quantize_blocks_test");
}

// Q4_K and Q5_K: eight pieces of 32 columns, each with a 6-bit scale and a 6-bit minimum under two
// f16 super-scales. Every piece is fitted alone; then the rounded scales and minima are tried
// around their ideal values, and the super-scales refitted to the codes, as long as the error
// falls.
#include <cmath>
#include <optional>

#include "base/half.h"
#include "quantize/affine_fit.h"
#include "quantize/blocks.h"

namespace coxswain::quantize {
namespace {

constexpr int kPieces = 8;
constexpr int kMostSix = 63;
constexpr int kRounds = 3;

struct Super {
  uint16_t d, dmin;  // f16
  int scale[kPieces], minimum[kPieces];
  float codes[kPieces * kPiece];
  double error;
};

struct Piece {
  AffinePiece data;
  AffineFit ideal;
};

struct Choice {
  int scale, minimum;
  double error;
};

int six_bits(float value) {
  const float whole = nearest(value > 0.0f ? (value < 1e6f ? value : 1e6f) : 0.0f);
  return whole < kMostSix ? static_cast<int>(whole) : kMostSix;
}

float quotient(float a, float b) { return b > 0.0f ? a / b : 0.0f; }

AffineFit rounded(float d, float dmin, int scale, int minimum) {
  return {d * static_cast<float>(scale), dmin * static_cast<float>(minimum)};
}

// The best 6-bit pair near the ideal one under the super-scales d and dmin.
Choice choose_pair(const Piece& piece, float d, float dmin) {
  const int middle = six_bits(quotient(piece.ideal.step, d));
  Choice best{0, 0, 0.0};
  bool found = false;
  const auto take = [&](int scale, int minimum) {
    const AffineFit fit = rounded(d, dmin, scale, minimum);
    const AffineSums sums = piece.data.code(fit, nullptr);
    const double error = piece.data.error(sums, fit);
    if (!found || error < best.error) best = {scale, minimum, error};
    found = true;
    return sums;
  };
  for (int scale = middle - 1; scale <= middle + 1; ++scale) {
    if (scale < 0 || scale > kMostSix) continue;
    const int minimum = six_bits(quotient(piece.ideal.minimum, dmin));
    const AffineSums sums = take(scale, minimum);
    const float step = d * static_cast<float>(scale);
    const int better = six_bits(quotient(piece.data.best_minimum(sums, step), dmin));
    if (better != minimum) take(scale, better);
  }
  return best;
}

// Pairs and codes for given super-scales.
Super fill(const Piece* pieces, uint16_t d, uint16_t dmin) {
  Super super;
  super.d = d;
  super.dmin = dmin;
  super.error = 0.0;
  for (int j = 0; j < kPieces; ++j) {
    const Choice choice = choose_pair(pieces[j], f16_to_f32(d), f16_to_f32(dmin));
    super.scale[j] = choice.scale;
    super.minimum[j] = choice.minimum;
    super.error += choice.error;
    pieces[j].data.code(rounded(f16_to_f32(d), f16_to_f32(dmin), choice.scale, choice.minimum),
                        super.codes + j * kPiece);
  }
  return super;
}

// Least squares over d and dmin with codes, scales and minima held.
std::optional<AffineFit> refit(const Piece* pieces, const Super& super) {
  const float d = f16_to_f32(super.d);
  const float dmin = f16_to_f32(super.dmin);
  double a = 0.0;
  double b = 0.0;
  double c = 0.0;
  double p = 0.0;
  double r = 0.0;
  for (int j = 0; j < kPieces; ++j) {
    const double scale = super.scale[j];
    const double minimum = super.minimum[j];
    const AffineSums sums =
        pieces[j].data.code(rounded(d, dmin, super.scale[j], super.minimum[j]), nullptr);
    a += scale * scale * sums.qq;
    b += scale * minimum * sums.q;
    c += minimum * minimum * pieces[j].data.weight();
    p += scale * sums.xq;
    r += minimum * pieces[j].data.weighted_sum();
  }
  const double determinant = a * c - b * b;
  if (determinant > 1e-12 * a * c) {
    return AffineFit{static_cast<float>((p * c - b * r) / determinant),
                     static_cast<float>((b * p - a * r) / determinant)};
  }
  if (a > 0.0 && c == 0.0) return AffineFit{static_cast<float>(p / a), 0.0f};
  return std::nullopt;
}

Super search(const float* x, int most) {
  // Built in place: pieces have no default.
  const auto piece_at = [&](int j) {
    const AffinePiece data(x + j * kPiece, most);
    return Piece{data, data.best_fit()};
  };
  const Piece pieces[kPieces] = {piece_at(0), piece_at(1), piece_at(2), piece_at(3),
                                 piece_at(4), piece_at(5), piece_at(6), piece_at(7)};
  float largest_step = 0.0f;
  float largest_minimum = 0.0f;
  for (const Piece& piece : pieces) {
    if (piece.ideal.step > largest_step) largest_step = piece.ideal.step;
    if (piece.ideal.minimum > largest_minimum) largest_minimum = piece.ideal.minimum;
  }
  Super best =
      fill(pieces, f32_to_f16(largest_step / kMostSix), f32_to_f16(largest_minimum / kMostSix));
  for (int round = 0; round < kRounds; ++round) {
    const std::optional<AffineFit> fit = refit(pieces, best);
    if (!fit || !(fit->step > 0.0f) || !(fit->minimum >= 0.0f)) break;
    const uint16_t d = f32_to_f16(fit->step);
    const uint16_t dmin = f32_to_f16(fit->minimum);
    if (d == best.d && dmin == best.dmin) break;
    Super next = fill(pieces, d, dmin);
    if (!(next.error < best.error)) break;
    best = next;
  }
  return best;
}

// Pairs 0..3 lie whole in bytes 0..3 and 4..7; pairs 4..7 as nibbles in bytes 8..11, with their
// upper two bits above those of pairs 0..3.
void put_pairs(const Super& super, uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    const int scale = super.scale[j + 4];
    const int minimum = super.minimum[j + 4];
    out[j] = static_cast<uint8_t>(super.scale[j] | ((scale >> 4) << 6));
    out[j + 4] = static_cast<uint8_t>(super.minimum[j] | ((minimum >> 4) << 6));
    out[j + 8] = static_cast<uint8_t>((scale & 15) | ((minimum & 15) << 4));
  }
}

int code_at(const Super& super, int piece, int column) {
  return static_cast<int>(super.codes[piece * kPiece + column]);
}

// Two pieces share 32 bytes: the even one has the low nibbles.
void put_low_bits(const Super& super, uint8_t* out) {
  for (int pair = 0; pair < kPieces / 2; ++pair) {
    for (int l = 0; l < kPiece; ++l) {
      const int low = code_at(super, 2 * pair, l) & 15;
      const int high = code_at(super, 2 * pair + 1, l) & 15;
      out[pair * kPiece + l] = static_cast<uint8_t>(low | (high << 4));
    }
  }
}

void put_head(const Super& super, uint8_t* out) {
  put_u16(super.d, out);
  put_u16(super.dmin, out + 2);
  put_pairs(super, out + 4);
}

}  // namespace

void quantize_q4_k(const float* x, uint8_t* out) {
  const Super super = search(x, 15);
  put_head(super, out);
  put_low_bits(super, out + 16);
}

void quantize_q5_k(const float* x, uint8_t* out) {
  const Super super = search(x, 31);
  put_head(super, out);
  for (int l = 0; l < kPiece; ++l) {
    int fifth = 0;
    for (int j = 0; j < kPieces; ++j) fifth |= (code_at(super, j, l) >> 4) << j;
    out[16 + l] = static_cast<uint8_t>(fifth);
  }
  put_low_bits(super, out + 48);
}

}  // namespace coxswain::quantize

// Q6_K: sixteen pieces of 16 columns, each with an int8 scale under one f16 super-scale; codes
// -32..31. As in Q4_K: every piece alone, then rounded scales around the ideal ones and a refitted
// super-scale.
#include <cmath>

#include "base/half.h"
#include "quantize/blocks.h"
#include "quantize/lanes.h"

namespace coxswain::quantize {
namespace {

constexpr int kPieces = 16;
constexpr int kColumns = 16;
constexpr int kVectors = kColumns / kLanes;
constexpr int kTrials = 13;  // the range stretched by -0.9 .. 0.9 codes
constexpr int kRounds = 3;
constexpr float kFlat = 1e-20f;

struct Sums {
  double xq, qq;  // sum of w x q, w q q
};

// Weights are the squares of the values.
struct Piece {
  Lanes value[kVectors];
  Lanes weight[kVectors];
  double xx;
  float ideal;  // step, signed: the value farthest from zero gets code -32
};

Sums code(const Piece& piece, float step, float* codes) {
  const float inverse = step != 0.0f ? 1.0f / step : 0.0f;
  const Lanes scale = spread(std::isfinite(inverse) ? inverse : 0.0f);
  const Lanes low = spread(-32.0f);
  const Lanes high = spread(31.0f);
  Lanes xq = spread(0.0f);
  Lanes qq = spread(0.0f);
  for (int v = 0; v < kVectors; ++v) {
    const Lanes q = nearest(at_most(at_least(piece.value[v] * scale, low), high));
    const Lanes weighted = piece.weight[v] * q;
    xq += weighted * piece.value[v];
    qq += weighted * q;
    if (codes != nullptr) store(q, codes + v * kLanes);
  }
  return {static_cast<double>(sum_of(xq)), static_cast<double>(sum_of(qq))};
}

double error_of(const Piece& piece, const Sums& sums, float step) {
  const double d = static_cast<double>(step);
  return piece.xx - 2.0 * d * sums.xq + d * d * sums.qq;
}

void fit(Piece& piece, float farthest) {
  piece.ideal = 0.0f;
  if (!(std::fabs(farthest) > kFlat)) return;
  // The best step for codes with these sums lowers the error by xq^2 / qq.
  double best_gain = -1.0;
  const auto take = [&](float step) {
    const Sums sums = code(piece, step, nullptr);
    if (!(sums.qq > 0.0)) return false;
    const double gain = sums.xq * sums.xq / sums.qq;
    if (!(gain > best_gain)) return false;
    best_gain = gain;
    piece.ideal = static_cast<float>(sums.xq / sums.qq);
    return true;
  };
  for (int trial = 0; trial < kTrials; ++trial) {
    const float stretch = 0.15f * static_cast<float>(trial - kTrials / 2);
    take(farthest / -(32.0f + stretch));
  }
  take(farthest / 31.0f);
  for (int round = 0; round < kRounds && take(piece.ideal); ++round) {
  }
}

Piece piece_of(const float* x) {
  Piece piece;
  Lanes xx = spread(0.0f);
  for (int v = 0; v < kVectors; ++v) {
    piece.value[v] = load(x + v * kLanes);
    piece.weight[v] = piece.value[v] * piece.value[v];
    xx += piece.weight[v] * piece.weight[v];
  }
  piece.xx = static_cast<double>(sum_of(xx));
  float farthest = 0.0f;
  for (int i = 0; i < kColumns; ++i) {
    if (std::fabs(x[i]) > std::fabs(farthest)) farthest = x[i];
  }
  fit(piece, farthest);
  return piece;
}

struct Super {
  uint16_t d;  // f16
  int scale[kPieces];
  double error;
};

int int8_of(float value) {
  const float bounded = value < -128.0f ? -128.0f : value > 127.0f ? 127.0f : value;
  return static_cast<int>(nearest(bounded));
}

Super fill(const Piece* pieces, uint16_t d) {
  Super super;
  super.d = d;
  super.error = 0.0;
  const float base = f16_to_f32(d);
  for (int j = 0; j < kPieces; ++j) {
    const int middle = base != 0.0f ? int8_of(pieces[j].ideal / base) : 0;
    double best = 0.0;
    bool found = false;
    for (int scale = middle - 1; scale <= middle + 1; ++scale) {
      if (scale < -128 || scale > 127) continue;
      const float step = base * static_cast<float>(scale);
      const double error = error_of(pieces[j], code(pieces[j], step, nullptr), step);
      if (found && !(error < best)) continue;
      found = true;
      best = error;
      super.scale[j] = scale;
    }
    super.error += best;
  }
  return super;
}

Super search(const Piece* pieces) {
  float largest = 0.0f;
  for (int j = 0; j < kPieces; ++j) {
    if (std::fabs(pieces[j].ideal) > std::fabs(largest)) largest = pieces[j].ideal;
  }
  Super best = fill(pieces, f32_to_f16(largest / -128.0f));
  for (int round = 0; round < kRounds; ++round) {
    const float base = f16_to_f32(best.d);
    double above = 0.0;
    double below = 0.0;
    for (int j = 0; j < kPieces; ++j) {
      const double scale = best.scale[j];
      const Sums sums = code(pieces[j], base * static_cast<float>(best.scale[j]), nullptr);
      above += scale * sums.xq;
      below += scale * scale * sums.qq;
    }
    if (!(below > 0.0)) break;
    const uint16_t d = f32_to_f16(static_cast<float>(above / below));
    if (d == best.d) break;
    const Super next = fill(pieces, d);
    if (!(next.error < best.error)) break;
    best = next;
  }
  return best;
}

}  // namespace

void quantize_q6_k(const float* x, uint8_t* out) {
  Piece pieces[kPieces];
  for (int j = 0; j < kPieces; ++j) pieces[j] = piece_of(x + j * kColumns);
  const Super super = search(pieces);
  int codes[kPieces * kColumns];
  for (int j = 0; j < kPieces; ++j) {
    float signed_codes[kColumns];
    code(pieces[j], f16_to_f32(super.d) * static_cast<float>(super.scale[j]), signed_codes);
    for (int i = 0; i < kColumns; ++i) {
      codes[j * kColumns + i] = static_cast<int>(signed_codes[i]) + 32;
    }
    out[192 + j] = static_cast<uint8_t>(super.scale[j] & 0xff);
  }
  put_u16(super.d, out + 208);
  // Halves of 128 columns, four runs of 32 each: nibbles of runs 0 and 2 share bytes, and of 1
  // and 3.
  for (int half = 0; half < 2; ++half) {
    const int* q = codes + 128 * half;
    uint8_t* low = out + 64 * half;
    uint8_t* high = out + 128 + 32 * half;
    for (int l = 0; l < 32; ++l) {
      low[l] = static_cast<uint8_t>((q[l] & 15) | ((q[l + 64] & 15) << 4));
      low[l + 32] = static_cast<uint8_t>((q[l + 32] & 15) | ((q[l + 96] & 15) << 4));
      high[l] = static_cast<uint8_t>((q[l] >> 4) | ((q[l + 32] >> 4) << 2) |
                                     ((q[l + 64] >> 4) << 4) | ((q[l + 96] >> 4) << 6));
    }
  }
}

}  // namespace coxswain::quantize

// Readers of the GGUF block formats (layouts and formulas: the type table of the format's reference
// implementation). Each reader takes the 32-column piece `part` (0..7) of a 256-column super-block,
// or the whole block of a 32-column type.
#include "kernels/blocks.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "kernels/codebooks.h"

namespace coxswain::kernels {
namespace {

uint16_t read_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | (p[1] << 8)); }
uint32_t read_u32(const uint8_t* p) {
  return static_cast<uint32_t>(read_u16(p)) | (static_cast<uint32_t>(read_u16(p + 2)) << 16);
}
uint8_t nibble(uint8_t byte, bool high) {
  return static_cast<uint8_t>(high ? byte >> 4 : byte & 15);
}

// Low nibbles are columns 0..15, high nibbles columns 16..31.
void read_halves(const uint8_t* qs, BlockCodes& out) {
  for (int j = 0; j < 16; ++j) {
    out.code[j] = nibble(qs[j], false);
    out.code[j + 16] = nibble(qs[j], true);
  }
}

void read_fifth_bits(const uint8_t* qh, BlockCodes& out) {
  const uint32_t bits = read_u32(qh);
  for (int j = 0; j < 32; ++j) {
    out.code[j] = static_cast<uint8_t>(out.code[j] | (((bits >> j) & 1u) << 4));
  }
}

void read_q8_0(const uint8_t* b, BlockCodes& out) {
  out.scale = read_u16(b);
  for (int j = 0; j < 32; ++j) out.code[j] = static_cast<uint8_t>(b[2 + j] ^ 0x80u);
}

// Scale and minimum of the 32-column piece j of Q4_K and Q5_K: pairs of 6 bits in 12 bytes.
void read_six_bit_pair(const uint8_t* s, int j, BlockCodes& out) {
  int scale = 0;
  int minimum = 0;
  if (j < 4) {
    scale = s[j] & 63;
    minimum = s[j + 4] & 63;
  } else {
    scale = (s[j + 4] & 15) | ((s[j - 4] >> 6) << 4);
    minimum = (s[j + 4] >> 4) | ((s[j] >> 6) << 4);
  }
  out.sub[0] = out.sub[1] = static_cast<int8_t>(scale);
  out.sub_min[0] = out.sub_min[1] = static_cast<uint8_t>(minimum);
}

void read_q4_k(const uint8_t* b, int part, BlockCodes& out) {
  out.scale = read_u16(b);
  out.min = read_u16(b + 2);
  read_six_bit_pair(b + 4, part, out);
  const uint8_t* qs = b + 16 + part / 2 * 32;
  for (int l = 0; l < 32; ++l) out.code[l] = nibble(qs[l], part % 2 != 0);
}

void read_q5_k(const uint8_t* b, int part, BlockCodes& out) {
  out.scale = read_u16(b);
  out.min = read_u16(b + 2);
  read_six_bit_pair(b + 4, part, out);
  const uint8_t* qh = b + 16;
  const uint8_t* qs = b + 48 + part / 2 * 32;
  for (int l = 0; l < 32; ++l) {
    const int fifth = (qh[l] >> part) & 1;
    out.code[l] = static_cast<uint8_t>(nibble(qs[l], part % 2 != 0) | (fifth << 4));
  }
}

void read_q2_k(const uint8_t* b, int part, BlockCodes& out) {
  out.scale = read_u16(b + 80);
  out.min = read_u16(b + 82);
  for (int half = 0; half < 2; ++half) {
    const uint8_t s = b[2 * part + half];
    out.sub[half] = static_cast<int8_t>(s & 15);
    out.sub_min[half] = static_cast<uint8_t>(s >> 4);
  }
  const uint8_t* qs = b + 16 + part / 4 * 32;
  const int shift = part % 4 * 2;
  for (int l = 0; l < 32; ++l) out.code[l] = static_cast<uint8_t>((qs[l] >> shift) & 3);
}

// Six-bit scale number j (0..15): low 4 bits in bytes 0..7, high 2 bits in bytes 8..11.
int q3_k_scale(const uint8_t* s, int j) {
  const int low = nibble(s[j % 8], j >= 8);
  const int high = (s[8 + j % 4] >> (j / 4 * 2)) & 3;
  return (low | (high << 4)) - 32;
}

void read_q3_k(const uint8_t* b, int part, BlockCodes& out) {
  out.scale = read_u16(b + 108);
  for (int half = 0; half < 2; ++half) {
    out.sub[half] = static_cast<int8_t>(q3_k_scale(b + 96, 2 * part + half));
  }
  const uint8_t* qs = b + 32 + part / 4 * 32;
  const int shift = part % 4 * 2;
  for (int l = 0; l < 32; ++l) {
    // The third bit is stored inverted against the value: set means "no 4 is subtracted".
    const int third = (b[l] >> part) & 1;
    out.code[l] = static_cast<uint8_t>(((qs[l] >> shift) & 3) | (third << 2));
  }
}

void read_q6_k(const uint8_t* b, int part, BlockCodes& out) {
  out.scale = read_u16(b + 208);
  const int half = part / 4;
  const int quarter = part % 4;
  const uint8_t* ql = b + 64 * half + 32 * (quarter % 2);
  const uint8_t* qh = b + 128 + 32 * half;
  for (int i = 0; i < 2; ++i) {
    out.sub[i] = std::bit_cast<int8_t>(b[192 + 2 * part + i]);
  }
  for (int l = 0; l < 32; ++l) {
    const int high = (qh[l] >> (2 * quarter)) & 3;
    out.code[l] = static_cast<uint8_t>(nibble(ql[l], quarter >= 2) | (high << 4));
  }
}

// The seven stored sign bits are completed to even parity.
uint8_t complete_signs(uint32_t seven) {
  const uint32_t parity = static_cast<uint32_t>(std::popcount(seven)) & 1u;
  return static_cast<uint8_t>(seven | (parity << 7));
}

// Eight columns from one IQ2 grid word, from group `g` (0..3) of the block.
void put_iq2(uint16_t word, uint8_t signs, int g, BlockCodes& out) {
  for (int j = 0; j < 8; ++j) {
    const int magnitude = (word >> (2 * j)) & 3;
    out.code[8 * g + j] = static_cast<uint8_t>(magnitude | (((signs >> j) & 1) << 2));
  }
}

// Four columns from one IQ3 grid word; `signs` holds their four bits.
void put_iq3(uint16_t word, int signs, int quarter, BlockCodes& out) {
  for (int j = 0; j < 4; ++j) {
    const int magnitude = (word >> (4 * j)) & 7;
    out.code[4 * quarter + j] = static_cast<uint8_t>(magnitude | (((signs >> j) & 1) << 3));
  }
}

// (0.5 + s) / 4 = (2s + 1) / 8: the odd integer is the sub-scale, the power of two the factor.
void set_odd_subs(int first, int second, BlockCodes& out) {
  out.sub[0] = static_cast<int8_t>(2 * first + 1);
  out.sub[1] = static_cast<int8_t>(2 * second + 1);
}

void read_iq2_xxs(const uint8_t* b, int part, BlockCodes& out) {
  out.scale = read_u16(b);
  const uint8_t* grid = b + 2 + 8 * part;
  const uint32_t word = read_u32(grid + 4);
  set_odd_subs(static_cast<int>(word >> 28), static_cast<int>(word >> 28), out);
  for (int g = 0; g < 4; ++g) {
    put_iq2(kIq2XxsGrid[grid[g]], complete_signs((word >> (7 * g)) & 127u), g, out);
  }
}

void read_iq2_xs(const uint8_t* b, int part, BlockCodes& out) {
  out.scale = read_u16(b);
  const uint8_t s = b[66 + part];
  set_odd_subs(s & 15, s >> 4, out);
  for (int g = 0; g < 4; ++g) {
    const uint16_t q = read_u16(b + 2 + 8 * part + 2 * g);
    put_iq2(kIq2XsGrid[q & 511], complete_signs(static_cast<uint32_t>(q >> 9)), g, out);
  }
}

void read_iq2_s(const uint8_t* b, int part, BlockCodes& out) {
  out.scale = read_u16(b);
  const uint8_t s = b[74 + part];
  set_odd_subs(s & 15, s >> 4, out);
  for (int g = 0; g < 4; ++g) {
    const int index = b[2 + 4 * part + g] | (((b[66 + part] >> (2 * g)) & 3) << 8);
    put_iq2(kIq2SGrid[index], b[34 + 4 * part + g], g, out);
  }
}

void read_iq3_xxs(const uint8_t* b, int part, BlockCodes& out) {
  out.scale = read_u16(b);
  const uint32_t word = read_u32(b + 66 + 4 * part);
  set_odd_subs(static_cast<int>(word >> 28), static_cast<int>(word >> 28), out);
  for (int quarter = 0; quarter < 8; ++quarter) {
    const uint8_t signs = complete_signs((word >> (7 * (quarter / 2))) & 127u);
    put_iq3(kIq3XxsGrid[b[2 + 8 * part + quarter]], signs >> (4 * (quarter % 2)), quarter, out);
  }
}

void read_iq3_s(const uint8_t* b, int part, BlockCodes& out) {
  out.scale = read_u16(b);
  const int s = nibble(b[106 + part / 2], part % 2 != 0);
  set_odd_subs(s, s, out);
  for (int quarter = 0; quarter < 8; ++quarter) {
    const int index = b[2 + 8 * part + quarter] | (((b[66 + part] >> quarter) & 1) << 8);
    const int signs = b[74 + 4 * part + quarter / 2] >> (4 * (quarter % 2));
    put_iq3(kIq3SGrid[index], signs, quarter, out);
  }
}

void read_iq4_xs(const uint8_t* b, int part, BlockCodes& out) {
  out.scale = read_u16(b);
  const int high = (read_u16(b + 2) >> (2 * part)) & 3;
  const int scale = (nibble(b[4 + part / 2], part % 2 != 0) | (high << 4)) - 32;
  out.sub[0] = out.sub[1] = static_cast<int8_t>(scale);
  read_halves(b + 8 + 16 * part, out);
}

void read_small_block(TensorType type, const uint8_t* b, BlockCodes& out) {
  out.scale = read_u16(b);
  switch (type) {
    case TensorType::kQ4_0:
    case TensorType::kIQ4_NL:
      return read_halves(b + 2, out);
    case TensorType::kQ4_1:
      out.min = read_u16(b + 2);
      return read_halves(b + 4, out);
    case TensorType::kQ5_0:
      read_halves(b + 6, out);
      return read_fifth_bits(b + 2, out);
    case TensorType::kQ5_1:
      out.min = read_u16(b + 2);
      read_halves(b + 8, out);
      return read_fifth_bits(b + 4, out);
    case TensorType::kQ8_0:
      return read_q8_0(b, out);
    case TensorType::kMXFP4:
      out.scale = b[0];
      return read_halves(b + 1, out);
    default:
      COX_CHECK(false, "a block type of 32 columns");
  }
}

void read_super_block(TensorType type, const uint8_t* b, int part, BlockCodes& out) {
  switch (type) {
    case TensorType::kQ2_K:
      return read_q2_k(b, part, out);
    case TensorType::kQ3_K:
      return read_q3_k(b, part, out);
    case TensorType::kQ4_K:
      return read_q4_k(b, part, out);
    case TensorType::kQ5_K:
      return read_q5_k(b, part, out);
    case TensorType::kQ6_K:
      return read_q6_k(b, part, out);
    case TensorType::kIQ2_XXS:
      return read_iq2_xxs(b, part, out);
    case TensorType::kIQ2_XS:
      return read_iq2_xs(b, part, out);
    case TensorType::kIQ2_S:
      return read_iq2_s(b, part, out);
    case TensorType::kIQ3_XXS:
      return read_iq3_xxs(b, part, out);
    case TensorType::kIQ3_S:
      return read_iq3_s(b, part, out);
    case TensorType::kIQ4_XS:
      return read_iq4_xs(b, part, out);
    default:
      COX_CHECK(false, "a block type of 256 columns");
  }
}

}  // namespace

void read_block(TensorType type, const uint8_t* row, int64_t block, BlockCodes& out) {
  const TensorTypeTraits& traits = traits_of(type);
  out.min = 0;
  out.sub[0] = out.sub[1] = 1;
  out.sub_min[0] = out.sub_min[1] = 0;
  if (traits.block_elements == 32) {
    return read_small_block(type, row + block * static_cast<int64_t>(traits.block_bytes), out);
  }
  const uint8_t* super = row + block / 8 * static_cast<int64_t>(traits.block_bytes);
  read_super_block(type, super, static_cast<int>(block % 8), out);
}

}  // namespace coxswain::kernels

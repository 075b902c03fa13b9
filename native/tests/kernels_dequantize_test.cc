// Dequantisation against recorded vectors (blocks of every type and the floats ggml gives for
// them), the hashes of the codebook grids, and dot products of both numeric modes against recorded
// ones.
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "kernels/codebooks.h"
#include "kernels/kernels.h"
#include "tests/check.h"
#include "tests/kernels_support.h"

using namespace coxswain;
using namespace coxswain::kernels;

namespace {

TensorType type_named(const std::string& name) {
  for (const TensorType type : testing::kAllTypes) {
    if (traits_of(type).name == name) return type;
  }
  std::fprintf(stderr, "fixture names an unknown type %s\n", name.c_str());
  std::abort();
}

uint32_t hex_number(const std::string& text, size_t at, size_t digits) {
  return static_cast<uint32_t>(std::stoul(text.substr(at, digits), nullptr, 16));
}

std::vector<uint8_t> read_bytes(std::istream& in) {
  std::string line;
  in >> line;
  std::vector<uint8_t> bytes(line.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(hex_number(line, 2 * i, 2));
  return bytes;
}

std::vector<float> read_floats(std::istream& in) {
  std::string line;
  in >> line;
  std::vector<float> floats(line.size() / 8);
  for (size_t i = 0; i < floats.size(); ++i)
    floats[i] = std::bit_cast<float>(hex_number(line, 8 * i, 8));
  return floats;
}

void check_block(std::istream& in) {
  std::string name;
  size_t count = 0;
  in >> name >> count;
  const TensorType type = type_named(name);
  const std::vector<uint8_t> bytes = read_bytes(in);
  const std::vector<float> expected = read_floats(in);
  CHECK(expected.size() == count && bytes.size() == row_bytes(type, static_cast<int64_t>(count)));
  std::vector<float> got(count);
  dequantize_row(type, bytes.data(), 0, static_cast<int64_t>(count), got.data());
  size_t different = 0;
  for (size_t i = 0; i < count; ++i) {
    const bool both_nan = std::isnan(got[i]) && std::isnan(expected[i]);
    if (!both_nan && got[i] != expected[i]) ++different;
  }
  if (!CHECK(different == 0)) std::fprintf(stderr, "  %s: %zu differ\n", name.c_str(), different);
}

// The exact mode is close to the float dot product; a8 within its quantisation step.
void check_dot(std::istream& in) {
  std::string name;
  std::string dot_bits;
  int64_t n = 0;
  in >> name >> n >> dot_bits;
  const TensorType type = type_named(name);
  const float expected = std::bit_cast<float>(hex_number(dot_bits, 0, 8));
  const std::vector<uint8_t> weights = read_bytes(in);
  const std::vector<float> act = read_floats(in);
  const Kernels& kernels = kernels_for(Isa::kScalar);
  std::vector<float> scratch(static_cast<size_t>(n));
  float exact = 0.0f;
  matmul_exact(kernels, type, weights.data(), weights.size(), 0, n, act.data(), n, 1, nullptr,
               &exact, 1, 0, 1, scratch.data());
  float weight_sum = 0.0f;
  dequantize_row(type, weights.data(), 0, n, scratch.data());
  for (const float w : scratch) weight_sum += std::fabs(w);
  if (!CHECK(std::fabs(exact - expected) <= 1e-6f * weight_sum)) {
    std::fprintf(stderr, "  %s exact %.8g, recorded %.8g\n", name.c_str(),
                 static_cast<double>(exact), static_cast<double>(expected));
  }
  testing::AlignedBytes packed(packed_bytes(type, 1, n));
  pack_rows(type, weights.data(), weights.size(), 0, n, 0, 1, packed.data());
  testing::AlignedBytes row(quantized_row_bytes(n));
  kernels.quantize_row(act.data(), n, row.data());
  float a8 = 0.0f;
  kernels.matmul_a8(type, packed.data(), 1, n, row.data(), 1, {&a8, nullptr, 1, nullptr, 0}, 0, 1);
  // Each activation is off by at most half a step of absmax/127; the errors have random signs.
  float absmax = 0.0f;
  for (const float a : act) absmax = std::fmax(absmax, std::fabs(a));
  const float step = absmax / 127.0f * weight_sum / std::sqrt(static_cast<float>(n));
  if (!CHECK(std::fabs(a8 - expected) <= step)) {
    std::fprintf(stderr, "  %s a8 %.8g, recorded %.8g\n", name.c_str(), static_cast<double>(a8),
                 static_cast<double>(expected));
  }
}

void check_fixture(const std::string& path) {
  std::ifstream in(path);
  std::string kind;
  int blocks = 0;
  int dots = 0;
  while (in >> kind) {
    if (kind == "block") {
      check_block(in);
      ++blocks;
    } else {
      check_dot(in);
      ++dots;
    }
  }
  CHECK(blocks == 60);
  CHECK(dots == 18);
}

// The hash of the grid as the reference implementation stores it: one byte an element.
void check_grid(const uint16_t* grid, size_t entries, const std::vector<int8_t>& magnitudes,
                size_t elements, const char* expected) {
  std::vector<uint8_t> bytes;
  const size_t bits = 16 / elements;
  for (size_t e = 0; e < entries; ++e) {
    for (size_t j = 0; j < elements; ++j) {
      const size_t index = static_cast<size_t>(grid[e] >> (bits * j)) & (elements == 8 ? 3u : 7u);
      bytes.push_back(static_cast<uint8_t>(magnitudes.at(index)));
    }
  }
  const std::string hash = hex(sha256(std::as_bytes(std::span(bytes))));
  if (!CHECK(hash.substr(0, 16) == expected)) std::fprintf(stderr, "  %s\n", hash.c_str());
}

void check_grids() {
  const std::vector<int8_t> iq2(kIq2Values, kIq2Values + 3);
  const std::vector<int8_t> iq3xxs(kIq3XxsValues, kIq3XxsValues + 8);
  const std::vector<int8_t> iq3s(kIq3SValues, kIq3SValues + 8);
  check_grid(kIq2XxsGrid, 256, iq2, 8, "05826b5d3e472a3a");
  check_grid(kIq2XsGrid, 512, iq2, 8, "06e47aaca60b4dc1");
  check_grid(kIq2SGrid, 1024, iq2, 8, "e1aa1473412b0552");
  check_grid(kIq3XxsGrid, 256, iq3xxs, 4, "46e35f5a997efdee");
  check_grid(kIq3SGrid, 512, iq3s, 4, "bd1af4945a1717c6");
}

// Columns taken from the middle of a row equal the same columns of the whole row.
void check_column_ranges() {
  testing::Random random(7);
  for (const TensorType type : testing::kAllTypes) {
    const int64_t k = 768;
    const std::vector<uint8_t> row = testing::random_rows(type, 1, k, random);
    std::vector<float> whole(static_cast<size_t>(k));
    dequantize_row(type, row.data(), 0, k, whole.data());
    for (const int64_t k0 : {32, 96, 224, 512}) {
      std::vector<float> part(160);
      dequantize_row(type, row.data(), k0, 160, part.data());
      CHECK(std::memcmp(part.data(), whole.data() + k0, 160 * sizeof(float)) == 0);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string here = __FILE__;
  const std::string root = here.substr(0, here.rfind("native/tests/"));
  check_fixture(argc > 1 ? argv[1] : root + "tests/vectors/kernels/dequant.txt");
  check_grids();
  check_column_ranges();
  return testing::finish("kernels_dequantize_test");
}

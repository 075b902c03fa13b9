// Four accumulators over stripes of 32 bytes, then words of 8 and 4 bytes, then single bytes.
#include "base/xxh64.h"

#include <bit>
#include <cstring>

namespace coxswain {
namespace {

constexpr uint64_t kPrime1 = 0x9e3779b185ebca87ull;
constexpr uint64_t kPrime2 = 0xc2b2ae3d27d4eb4full;
constexpr uint64_t kPrime3 = 0x165667b19e3779f9ull;
constexpr uint64_t kPrime4 = 0x85ebca77c2b2ae63ull;
constexpr uint64_t kPrime5 = 0x27d4eb2f165667c5ull;

template <typename Word>
Word read(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

uint64_t round(uint64_t accumulator, uint64_t word) {
  return std::rotl(accumulator + word * kPrime2, 31) * kPrime1;
}

uint64_t merge(uint64_t hash, uint64_t accumulator) {
  return (hash ^ round(0, accumulator)) * kPrime1 + kPrime4;
}

uint64_t finish(uint64_t hash, const std::byte* at, const std::byte* end) {
  for (; end - at >= 8; at += 8) {
    hash = std::rotl(hash ^ round(0, read<uint64_t>(at)), 27) * kPrime1 + kPrime4;
  }
  if (end - at >= 4) {
    hash = std::rotl(hash ^ (read<uint32_t>(at) * kPrime1), 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at != end; ++at) {
    hash = std::rotl(hash ^ (std::to_integer<uint64_t>(*at) * kPrime5), 11) * kPrime1;
  }
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace

uint64_t xxh64(std::span<const std::byte> bytes, uint64_t seed) {
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
  uint64_t hash = seed + kPrime5;
  if (bytes.size() >= 32) {
    uint64_t a = seed + kPrime1 + kPrime2;
    uint64_t b = seed + kPrime2;
    uint64_t c = seed;
    uint64_t d = seed - kPrime1;
    for (; end - at >= 32; at += 32) {
      a = round(a, read<uint64_t>(at));
      b = round(b, read<uint64_t>(at + 8));
      c = round(c, read<uint64_t>(at + 16));
      d = round(d, read<uint64_t>(at + 24));
    }
    hash = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    for (const uint64_t accumulator : {a, b, c, d}) hash = merge(hash, accumulator);
  }
  return finish(hash + bytes.size(), at, end);
}

}  // namespace coxswain

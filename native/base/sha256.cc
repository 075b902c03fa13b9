// The compression function follows FIPS 180-4 section 6.2; names of variables are the standard's.
#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <cerrno>
#if defined(__linux__)
#include <sys/random.h>
#else
#include <unistd.h>
#if defined(__APPLE__)
#include <sys/random.h>
#endif
#endif

#include "base/error.h"

namespace coxswain {
namespace {

constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load_big_endian(const std::byte* p) {
  return (static_cast<uint32_t>(p[0]) << 24) | (static_cast<uint32_t>(p[1]) << 16) |
         (static_cast<uint32_t>(p[2]) << 8) | static_cast<uint32_t>(p[3]);
}

void store_big_endian(uint32_t value, std::byte* p) {
  for (int i = 0; i < 4; ++i) p[i] = static_cast<std::byte>(value >> (24 - 8 * i));
}

void compress(std::array<uint32_t, 8>& state, const std::byte* block) {
  std::array<uint32_t, 64> w;
  for (size_t t = 0; t < 16; ++t) w[t] = load_big_endian(block + 4 * t);
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                        ((e & f) ^ (~e & g)) + kRound[t] + w[t];
    const uint32_t t2 =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<uint32_t, 8> next = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state[i] += next[i];
}

}  // namespace

void Sha256::update(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  total_ += bytes.size();
  if (filled_ > 0) {
    const size_t take = std::min(bytes.size(), block_.size() - filled_);
    std::memcpy(block_.data() + filled_, bytes.data(), take);
    filled_ += take;
    bytes = bytes.subspan(take);
    if (filled_ < block_.size()) return;
    compress(state_, block_.data());
    filled_ = 0;
  }
  while (bytes.size() >= block_.size()) {
    compress(state_, bytes.data());
    bytes = bytes.subspan(block_.size());
  }
  if (!bytes.empty()) std::memcpy(block_.data(), bytes.data(), bytes.size());
  filled_ = bytes.size();
}

Sha256Digest Sha256::finish() {
  const uint64_t bits = total_ * 8;
  block_[filled_++] = std::byte{0x80};
  if (filled_ > 56) {
    std::fill(block_.begin() + static_cast<std::ptrdiff_t>(filled_), block_.end(), std::byte{0});
    compress(state_, block_.data());
    filled_ = 0;
  }
  std::fill(block_.begin() + static_cast<std::ptrdiff_t>(filled_), block_.begin() + 56,
            std::byte{0});
  store_big_endian(static_cast<uint32_t>(bits >> 32), block_.data() + 56);
  store_big_endian(static_cast<uint32_t>(bits), block_.data() + 60);
  compress(state_, block_.data());
  Sha256Digest digest;
  for (size_t i = 0; i < 8; ++i) store_big_endian(state_[i], digest.data() + 4 * i);
  return digest;
}

Sha256Digest sha256(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

Sha256Digest sha256(std::string_view text) { return sha256(bytes_of(text)); }

Sha256Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  std::array<std::byte, 64> padded{};
  if (key.size() > padded.size()) {
    const Sha256Digest shortened = sha256(key);
    std::copy(shortened.begin(), shortened.end(), padded.begin());
  } else {
    std::copy(key.begin(), key.end(), padded.begin());
  }
  std::array<std::byte, 64> inner_pad;
  std::array<std::byte, 64> outer_pad;
  for (size_t i = 0; i < padded.size(); ++i) {
    inner_pad[i] = padded[i] ^ std::byte{0x36};
    outer_pad[i] = padded[i] ^ std::byte{0x5c};
  }
  Sha256 inner;
  inner.update(inner_pad);
  inner.update(message);
  Sha256 outer;
  outer.update(outer_pad);
  outer.update(inner.finish());
  return outer.finish();
}

std::vector<std::byte> hkdf_sha256(std::span<const std::byte> key, std::span<const std::byte> info,
                                   size_t length, std::span<const std::byte> salt) {
  COX_CHECK(length <= 255 * 32, "HKDF gives at most 255 digests");
  // HMAC pads its key with zeros, so an empty salt already equals 32 zero bytes.
  const Sha256Digest pseudo_random_key = hmac_sha256(salt, key);
  std::vector<std::byte> out;
  out.reserve(length + 32);
  std::vector<std::byte> message;
  for (uint8_t counter = 1; out.size() < length; ++counter) {
    message.insert(message.end(), info.begin(), info.end());
    message.push_back(static_cast<std::byte>(counter));
    const Sha256Digest part = hmac_sha256(pseudo_random_key, message);
    out.insert(out.end(), part.begin(), part.end());
    message.assign(part.begin(), part.end());
  }
  out.resize(length);
  return out;
}

std::string hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte b : bytes) {
    text.push_back(kDigits[static_cast<size_t>(b >> 4)]);
    text.push_back(kDigits[static_cast<size_t>(b & std::byte{15})]);
  }
  return text;
}

bool equal_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  // volatile: the loop must not end at the first difference.
  volatile unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | static_cast<unsigned char>(a[i] ^ b[i]));
  }
  return difference == 0;
}

void random_bytes(std::span<std::byte> out) {
  while (!out.empty()) {
    const size_t want = std::min<size_t>(out.size(), 256);  // getentropy's limit
#if defined(__linux__)
    const ssize_t got = getrandom(out.data(), want, 0);
    if (got < 0 && errno == EINTR) continue;
    COX_CHECK(got > 0, "the operating system gives random bytes");
    out = out.subspan(static_cast<size_t>(got));
#else
    COX_CHECK(getentropy(out.data(), want) == 0, "the operating system gives random bytes");
    out = out.subspan(want);
#endif
  }
}

}  // namespace coxswain

// SHA-256 (FIPS 180-4), HMAC-SHA-256 (RFC 2104), HKDF-SHA-256 (RFC 5869) and what goes with them:
// hex, comparison in constant time, random bytes of the operating system.
//
// Used for model fingerprints, plan hashes and the proofs between ranks. No state outlives a call.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coxswain {

using Sha256Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  // The digest of everything fed so far. Ends the object's use.
  Sha256Digest finish();

 private:
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> block_{};
  size_t filled_ = 0;
  uint64_t total_ = 0;
};

Sha256Digest sha256(std::span<const std::byte> bytes);
Sha256Digest sha256(std::string_view text);
Sha256Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);
// RFC 5869 extract-then-expand; length <= 255 * 32. An empty salt means 32 zero bytes.
std::vector<std::byte> hkdf_sha256(std::span<const std::byte> key, std::span<const std::byte> info,
                                   size_t length, std::span<const std::byte> salt = {});

// Lower-case hex, two digits a byte.
std::string hex(std::span<const std::byte> bytes);
// Takes the same time wherever the first difference stands; different sizes are unequal at once.
bool equal_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);
// Fills from the operating system's generator; aborts when it has none (no proof could be trusted).
void random_bytes(std::span<std::byte> out);

// Strings as keys and messages.
inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace coxswain

// The proof that opens a connection between two ranks: pure functions over bytes.
//
// The higher rank dials. Four messages, each of fixed size:
//   dialer   -> acceptor  Hello                     who I am, which epoch, my nonce
//   acceptor -> dialer    Hello
//   dialer   -> acceptor  MAC of the dialer         32 bytes; strangers learn nothing before it
//   acceptor -> dialer    MAC of the acceptor
//
// MAC = HMAC-SHA-256(link key, label with the role | dialer's Hello | acceptor's Hello)
// link key = HKDF-SHA-256(data key, "coxswain link v1" | epoch | incarnation | lower rank | higher
// rank)
//
// Hello, 72 bytes, little-endian:
//   offset size field
//        0    4 magic "CXLK"
//        4    2 version
//        6    1 role: 1 dialer, 2 acceptor
//        7    1 zero
//        8    8 epoch
//       16   16 incarnation
//       32    4 sender's rank
//       36    4 receiver's rank
//       40   32 nonce
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/sha256.h"
#include "comm/frame.h"

namespace coxswain::comm {

inline constexpr uint16_t kLinkVersion = 1;
// What a connection may cost before it has proved itself.
inline constexpr size_t kUnprovenBytesMax = 4096;
inline constexpr int64_t kUnprovenNs = 5'000'000'000;
inline constexpr size_t kUnprovenConnectionsMax = 64;

enum class Role : uint8_t { kDialer = 1, kAcceptor = 2 };
using Nonce = std::array<std::byte, 32>;
using Proof = Sha256Digest;

struct Hello {
  uint32_t magic = 0x4b4c5843;  // "CXLK"
  uint16_t version = kLinkVersion;
  Role role = Role::kDialer;
  uint8_t zero = 0;
  uint64_t epoch = 0;
  std::array<std::byte, 16> incarnation{};
  uint32_t from = 0, to = 0;
  Nonce nonce{};
};
static_assert(sizeof(Hello) == 72 && offsetof(Hello, epoch) == 8 && offsetof(Hello, nonce) == 40);
static_assert(sizeof(Hello) + sizeof(Proof) <= kUnprovenBytesMax);

// Of 32 hex digits; none for anything else.
std::optional<std::array<std::byte, 16>> parse_incarnation(const std::string& hex_digits);
Hello make_hello(Role role,
                 const Hello& about);  // epoch, incarnation, ranks of `about`; a new nonce
// Empty when `got` is the counterpart of `mine` (other role, swapped ranks, same epoch, incarnation
// and version, another nonce), else what differs.
std::string refusal_of(const Hello& got, const Hello& mine);
std::vector<std::byte> link_key(const std::string& data_key, const Hello& either);
Proof prove(const std::vector<std::byte>& key, Role role, const Hello& dialer,
            const Hello& acceptor);

}  // namespace coxswain::comm

// Bytes in, bytes out: identities, keys and proofs of the link handshake. No sockets, no state.
#include "comm/handshake.h"

#include <algorithm>

namespace coxswain::comm {
namespace {

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

template <typename T>
void append(std::vector<std::byte>& out, const T& value) {
  const Bytes bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void append(std::vector<std::byte>& out, std::string_view text) {
  const Bytes bytes = bytes_of(text);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

std::optional<std::array<std::byte, 16>> parse_incarnation(const std::string& hex_digits) {
  std::array<std::byte, 16> bytes{};
  if (hex_digits.size() != 2 * bytes.size()) return std::nullopt;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const int high = digit_of(hex_digits[2 * i]);
    const int low = digit_of(hex_digits[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes[i] = static_cast<std::byte>(high * 16 + low);
  }
  return bytes;
}

Hello make_hello(Role role, const Hello& about) {
  Hello hello = about;
  hello.role = role;
  random_bytes(hello.nonce);
  return hello;
}

std::string refusal_of(const Hello& got, const Hello& mine) {
  if (got.magic != mine.magic) return "it does not speak the link protocol";
  if (got.version != mine.version) {
    return "it speaks version " + std::to_string(got.version) +
           " of the link protocol, this rank " + std::to_string(mine.version);
  }
  if (got.nonce == mine.nonce || got.role == mine.role) return "it sends back what this rank sent";
  if (got.role != Role::kDialer && got.role != Role::kAcceptor) return "it names no role";
  if (got.epoch != mine.epoch) {
    return "it is in epoch " + std::to_string(got.epoch) + ", this rank in " +
           std::to_string(mine.epoch);
  }
  if (got.incarnation != mine.incarnation) return "it follows another start of the coordinator";
  if (got.from != mine.to || got.to != mine.from) {
    return "it is rank " + std::to_string(got.from) + " looking for rank " + std::to_string(got.to);
  }
  return {};
}

std::vector<std::byte> link_key(const std::string& data_key, const Hello& either) {
  std::vector<std::byte> info;
  append(info, std::string_view("coxswain link v1"));
  append(info, either.epoch);
  append(info, either.incarnation);
  append(info, std::min(either.from, either.to));
  append(info, std::max(either.from, either.to));
  return hkdf_sha256(bytes_of(data_key), info, 32);
}

Proof prove(const std::vector<std::byte>& key, Role role, const Hello& dialer,
            const Hello& acceptor) {
  std::vector<std::byte> message;
  append(message, std::string_view(role == Role::kDialer ? "coxswain link v1 dialer"
                                                         : "coxswain link v1 acceptor"));
  append(message, dialer);
  append(message, acceptor);
  return hmac_sha256(key, message);
}

}  // namespace coxswain::comm

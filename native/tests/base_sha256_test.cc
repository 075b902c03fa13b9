// SHA-256, HMAC and HKDF against the published vectors of FIPS 180-4, RFC 4231 and RFC 5869.
#include "base/sha256.h"

#include <algorithm>
#include <string>
#include <vector>

#include "check.h"

using namespace coxswain;

namespace {

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

void digests() {
  CHECK(hex(sha256("")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")) ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hex(sha256(std::string(1'000'000, 'a'))) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Every way to cut a message gives one digest; lengths around the 55, 56 and 64 byte edges
// included.
void increments() {
  for (size_t length = 0; length < 200; ++length) {
    std::string text(length, '\0');
    for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>(i * 7 + length);
    const Sha256Digest whole = sha256(text);
    for (const size_t step : {1u, 3u, 63u, 64u, 65u}) {
      Sha256 hash;
      for (size_t i = 0; i < length; i += step) hash.update(std::string_view(text).substr(i, step));
      CHECK(hash.finish() == whole);
    }
  }
}

void macs() {
  const std::string key_a(20, '\x0b');
  CHECK(hex(hmac_sha256(bytes_of(key_a), bytes_of("Hi There"))) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hex(hmac_sha256(bytes_of("Jefe"), bytes_of("what do ya want for nothing?"))) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  const std::string key_b(131, '\xaa');
  CHECK(hex(hmac_sha256(bytes_of(key_b),
                        bytes_of("Test Using Larger Than Block-Size Key - Hash Key First"))) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

void derived_keys() {
  const std::vector<std::byte> key(22, std::byte{0x0b});
  CHECK(hex(hkdf_sha256(key, from_hex("f0f1f2f3f4f5f6f7f8f9"), 42,
                        from_hex("000102030405060708090a0b0c"))) ==
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
  CHECK(hex(hkdf_sha256(key, {}, 42)) ==
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
}

void comparison_and_randomness() {
  CHECK(equal_constant_time(bytes_of("abc"), bytes_of("abc")));
  CHECK(!equal_constant_time(bytes_of("abc"), bytes_of("abd")));
  CHECK(!equal_constant_time(bytes_of("abc"), bytes_of("ab")));
  CHECK(equal_constant_time({}, {}));
  std::vector<std::byte> a(1000);
  std::vector<std::byte> b(1000);
  random_bytes(a);
  random_bytes(b);
  CHECK(a != b);
  // 1000 random bytes lack a given value with probability 2 %; 64 values all at once: never.
  CHECK(std::count_if(a.begin(), a.end(), [](std::byte v) { return v < std::byte{64}; }) > 100);
}

}  // namespace

int main() {
  digests();
  increments();
  macs();
  derived_keys();
  comparison_and_randomness();
  return coxswain::testing::finish("base_sha256_test");
}

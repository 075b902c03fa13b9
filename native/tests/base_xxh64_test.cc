// XXH64 against its published values, and over every length across its inner boundaries.
#include "base/xxh64.h"

#include <set>
#include <string_view>
#include <vector>

#include "check.h"

using namespace coxswain;

namespace {

uint64_t hash_of(std::string_view text, uint64_t seed = 0) {
  return xxh64(std::as_bytes(std::span(text.data(), text.size())), seed);
}

}  // namespace

int main() {
  CHECK(hash_of("") == 0xef46db3751d8e999ull);
  CHECK(hash_of("a") == 0xd24ec4f1a98c6e5bull);
  CHECK(hash_of("abc") == 0x44bc2cf5ad770999ull);
  CHECK(hash_of("Nobody inspects the spammish repetition") == 0xfbcea83c8a378bf1ull);
  std::vector<std::byte> bytes(200);
  std::set<uint64_t> seen;
  for (size_t length = 0; length <= bytes.size(); ++length) {
    CHECK(seen.insert(xxh64(std::span(bytes).first(length))).second);
  }
  for (std::byte& byte : bytes) {
    byte = std::byte{1};
    CHECK(seen.insert(xxh64(bytes)).second);
    byte = std::byte{0};
  }
  return coxswain::testing::finish("base_xxh64_test");
}

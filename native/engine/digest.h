// A fast 64-bit digest of what ranks must agree on (records, ids, lengths, hidden states). It finds
// accidents, not attacks: every word passes a multiply-and-fold with a constant.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace coxswain::engine {

class Digest {
 public:
  void add(uint64_t word) {
    const uint64_t mixed = (state_ ^ word) * 0x9e3779b97f4a7c15u;
    state_ = (mixed ^ (mixed >> 29)) + 0x632be59bd9b4e019u;
  }
  void add(std::span<const std::byte> bytes) {
    size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
      uint64_t word;
      std::memcpy(&word, bytes.data() + at, 8);
      add(word);
    }
    uint64_t tail = bytes.size();
    for (; at < bytes.size(); ++at) tail = (tail << 8) | static_cast<uint64_t>(bytes[at]);
    add(tail);
  }
  uint64_t value() const { return state_ ^ (state_ >> 32); }

 private:
  uint64_t state_ = 0x243f6a8885a308d3u;
};

}  // namespace coxswain::engine

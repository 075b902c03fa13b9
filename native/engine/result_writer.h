// The words of a step result (layout: step_record.h).
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace coxswain::engine {

class ResultWriter {
 public:
  void begin(uint64_t epoch, uint64_t step) {
    bytes_.clear();
    word(0x31525843);
    wide(epoch);
    wide(step);
    for (int later = 0; later < 3; ++later) word(0);
  }
  void word(uint32_t value) {
    const size_t at = bytes_.size();
    bytes_.resize(at + 4);
    std::memcpy(bytes_.data() + at, &value, 4);
  }
  void wide(uint64_t value) {
    word(static_cast<uint32_t>(value));
    word(static_cast<uint32_t>(value >> 32));
  }
  void number(float value) { word(std::bit_cast<uint32_t>(value)); }
  void numbers(std::span<const float> values) {
    const size_t at = bytes_.size();
    bytes_.resize(at + values.size_bytes());
    std::memcpy(bytes_.data() + at, values.data(), values.size_bytes());
  }
  std::vector<std::byte> finish(uint32_t outputs, uint32_t compute_us, uint32_t wait_us) {
    const uint32_t words[3] = {outputs, compute_us, wait_us};
    std::memcpy(bytes_.data() + 20, words, sizeof(words));
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace coxswain::engine

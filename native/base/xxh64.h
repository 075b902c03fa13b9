// XXH64: a fast checksum against damage, not against forgery. Equal on every machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace coxswain {

// The published algorithm (XXH64, little-endian input), any length.
uint64_t xxh64(std::span<const std::byte> bytes, uint64_t seed = 0);

}  // namespace coxswain

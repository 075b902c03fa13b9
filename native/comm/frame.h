// The header that opens every frame of the data plane. A link is a stream of frames; each starts at
// a multiple of 64 bytes and is padded with zeros to the next one, so that floats never straddle
// the wrap of a ring. All numbers are little-endian.
//
//   offset size field
//        0    4 magic            "CXF1" (the digit is the version of this table)
//        4    2 kind             FrameKind
//        6    2 layer            signed; -1 where the frame belongs to no layer
//        8    8 epoch            a frame of another epoch is never taken
//       16    8 step             step of the sender
//       24    8 sequence         counts frames per link and direction from 0
//       32    8 payload_bytes    without padding
//       40   16 tag              zero; reserved for the tag of an authenticated cipher
//       56    4 source           rank of the sender
//       60    4 reserved         zero
//       64    n payload, then zeros up to a multiple of 64
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace coxswain::comm {

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

inline constexpr uint32_t kFrameMagic = 0x31465843;  // "CXF1" read as a little-endian word
inline constexpr size_t kFrameAlign = 64;

enum class FrameKind : uint16_t {
  kMessage = 1,  // send / recv
  kPartial = 2,  // addends of an all_reduce
  kSum = 3,      // a reduced slice on its way to the other ranks
  kProbe = 4,    // ping-pong made while the link is opened
  kPacket = 5,   // envelope of packet links: a piece of the frame stream
  kCredit = 6,   // envelope of packet links: the receiver took so many bytes (u64 payload)
};
const char* frame_kind_name(FrameKind kind);

struct FrameHeader {
  uint32_t magic = kFrameMagic;
  FrameKind kind = FrameKind::kMessage;
  int16_t layer = -1;
  uint64_t epoch = 0;
  uint64_t step = 0;
  uint64_t sequence = 0;
  uint64_t payload_bytes = 0;
  std::array<std::byte, 16> tag{};
  uint32_t source = 0;
  uint32_t reserved = 0;
};
static_assert(std::endian::native == std::endian::little,
              "the header is copied as it lies in memory");
static_assert(sizeof(FrameHeader) == kFrameAlign && offsetof(FrameHeader, layer) == 6 &&
              offsetof(FrameHeader, epoch) == 8 && offsetof(FrameHeader, payload_bytes) == 32 &&
              offsetof(FrameHeader, source) == 56);

// Zeros that follow a payload.
inline size_t frame_padding(uint64_t payload_bytes) {
  return static_cast<size_t>(-payload_bytes & (kFrameAlign - 1));
}

}  // namespace coxswain::comm

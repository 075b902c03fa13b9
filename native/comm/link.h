// One direction-pair of bytes between two ranks: what a transport has to implement. A link moves
// bytes without blocking and says how to sleep until it can move more; framing, order, sums,
// deadlines and error texts are written once above it (channel, wait, collective).
//
// A link is used by one thread at a time. Bytes handed to write_some arrive in order or not at all.
#pragma once
#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "comm/frame.h"

namespace coxswain::comm {

class Bell;

enum Interest : uint32_t { kWantsData = 1, kWantsRoom = 2 };

// What to sleep on until a link can move again: exactly one of a shared word, a socket, a bell.
struct SleepHandle {
  std::atomic<uint32_t>* word = nullptr;  // sleep while *word == value
  uint32_t value = 0;
  int fd = -1;  // sleep until poll events
  short events = 0;
  Bell* bell = nullptr;  // sleep while bell->rings() == rings
  uint64_t rings = 0;
};

class Link {
 public:
  virtual ~Link() = default;
  // Takes a prefix of the concatenated parts, possibly nothing. Returns the bytes taken.
  virtual size_t write_some(std::span<const Bytes> parts) = 0;
  // Hands on what write_some took but may still hold. Never blocks.
  virtual void flush() {}
  // Bytes that have arrived, contiguous, valid until consume; at least 4 unless fewer are there.
  virtual Bytes peek() = 0;
  virtual void consume(size_t bytes) = 0;
  // Copies what is there, up to into.size(). Returns the bytes copied.
  virtual size_t read_some(MutableBytes into);
  // Announces that the owner is about to sleep: whoever gives data or room from now on wakes it.
  // The owner tries to move once more between arm and sleeping, and calls disarm afterwards.
  virtual SleepHandle arm(uint32_t interests) = 0;
  virtual void disarm() {}
  // Empty while the peer is there, else why it is not. May make one system call; arrived bytes can
  // still be read afterwards.
  virtual std::string closed() = 0;
};

}  // namespace coxswain::comm

// A link over one TCP connection. Small reads go through a buffer, large ones straight to their
// place.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "comm/link.h"
#include "comm/socket.h"

namespace coxswain::comm {

class TcpLink final : public Link {
 public:
  // The socket is shared with the fabric, which may shut it down from another thread.
  explicit TcpLink(std::shared_ptr<Fd> socket);

  size_t write_some(std::span<const Bytes> parts) override;
  Bytes peek() override;
  void consume(size_t bytes) override { begin_ += bytes; }
  size_t read_some(MutableBytes into) override;
  SleepHandle arm(uint32_t interests) override;
  std::string closed() override { return closed_; }

  // True when nothing was received that was not also taken.
  bool drained() const { return begin_ == end_; }

 private:
  size_t receive(MutableBytes into);
  void note_error(int error);

  std::shared_ptr<Fd> socket_;
  std::vector<std::byte> buffer_;
  size_t begin_ = 0, end_ = 0;
  std::string closed_;
};

}  // namespace coxswain::comm

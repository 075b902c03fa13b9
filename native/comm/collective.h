// all_reduce over channels. Both ways are one machine: every rank owns a region of the vector that
// it reduces in rank order while the partials (f64) arrive, and sends the others the partials of
// their regions.
//
//   direct exchange    everyone's region is the whole vector; nothing follows
//   reduce-scatter     region k is slice k of N; each reduced slice (f32) then goes to everyone
//                      (all-gather), beginning while it is still being reduced
//
// Sends and receives progress together, so links may be smaller than the vector.
#pragma once
#include <span>
#include <vector>

#include "comm/wait.h"

namespace coxswain::comm {

// What one rank brings and what it gets; equally long.
struct Addends {
  std::span<const double> partials;
  std::span<float> sum;
};

class AllReduce final : public Operation {
 public:
  // Scratch for groups of up to `ranks`; one object serves all collectives of a plane.
  explicit AllReduce(size_t ranks);
  // `others`: channels to the rest of the group in ascending rank; `position`: of this rank among
  // all.
  void begin(std::span<Channel* const> others, size_t position, const Addends& addends,
             const Wait& wait);

  Progress advance() override;
  void list_pending(std::vector<Pending>& pending) override;

 private:
  struct Peer {
    Channel* channel;
    size_t first, count;  // its region, in elements (scatter) or the whole vector (direct)
    bool sum_sent;        // the frame with our reduced region was begun
    bool sum_due;         // we are past its partial and wait for its reduced region
    size_t gathered;      // bytes of its reduced region
  };
  bool advance_send(Peer& peer);
  bool advance_receive(Peer& peer);
  bool reduce();
  bool receive_done(const Peer& peer) const;
  bool send_done(const Peer& peer) const;
  // Bytes of the frame that a peer sends next.
  size_t bytes_due(const Peer& peer) const;
  void expect_bytes(const Peer& peer, size_t bytes) const;

  std::vector<Peer> peers_;
  std::vector<const std::byte*> partials_;  // one per rank of the group, in rank order
  size_t position_ = 0;
  Addends addends_;
  const Wait* wait_ = nullptr;
  bool scatter_ = false;
  size_t first_ = 0, count_ = 0;  // own region, in elements
  size_t reduced_ = 0;            // elements of it
};

}  // namespace coxswain::comm

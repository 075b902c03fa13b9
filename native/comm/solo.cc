// A rank alone: a plane without links. Its group has one member, so sums are what they were.
#include "comm/plane.h"

namespace coxswain::comm {

std::unique_ptr<DataPlane> make_solo_plane(uint64_t epoch) {
  return std::make_unique<LinkedPlane>(0, epoch, std::vector<std::unique_ptr<Channel>>{}, nullptr);
}

}  // namespace coxswain::comm

// The copying read that every link gets for nothing.
#include "comm/link.h"

#include <algorithm>
#include <cstring>

namespace coxswain::comm {

size_t Link::read_some(MutableBytes into) {
  size_t copied = 0;
  while (copied < into.size()) {
    const Bytes there = peek();
    const size_t n = std::min(there.size(), into.size() - copied);
    if (n == 0) break;
    std::memcpy(into.data() + copied, there.data(), n);
    consume(n);
    copied += n;
  }
  return copied;
}

}  // namespace coxswain::comm

// How much memory this host has and could give right now.
#pragma once
#include <cstdint>

namespace coxswain {

struct HostMemory {
  uint64_t installed;  // bytes; the control group's limit where that is lower
  uint64_t available;  // bytes that could be used without swapping; page cache counts as free
};

// Zeros where the system does not tell.
HostMemory host_memory();

}  // namespace coxswain

// Which boot of which host this process runs on.
#include <unistd.h>

#include <array>
#include <fstream>
#include <string>

#include "base/sha256.h"
#include "comm/rendezvous.h"

namespace coxswain::comm {

std::array<std::byte, 32> host_identity() {
  std::string identity;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  if (!std::getline(boot, identity)) {
    // Without a boot id the name stands in; the token in the segment decides in any case.
    std::array<char, 256> name{};
    gethostname(name.data(), name.size() - 1);
    identity = name.data();
  }
  // Hashed, so that nobody on the path learns the id itself.
  return sha256("coxswain host " + identity);
}

}  // namespace coxswain::comm

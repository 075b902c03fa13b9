// Memory of the host: /proc/meminfo and the control group on Linux, the Mach statistics on macOS.
#include "base/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#if defined(__APPLE__)
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

namespace coxswain {

#if defined(__APPLE__)

HostMemory host_memory() {
  HostMemory memory{};
  size_t size = sizeof memory.installed;
  sysctlbyname("hw.memsize", &memory.installed, &size, nullptr, 0);
  vm_statistics64_data_t pages{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  if (host_statistics64(mach_host_self(), HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&pages),
                        &count) == KERN_SUCCESS) {
    memory.available = (uint64_t{pages.free_count} + pages.inactive_count + pages.purgeable_count) *
                       vm_kernel_page_size;
  }
  return memory;
}

#else

namespace {

// "max" (no limit) and missing files give the largest number.
uint64_t read_limit(const char* path) {
  std::ifstream file(path);
  uint64_t bytes = 0;
  return file >> bytes ? bytes : std::numeric_limits<uint64_t>::max();
}

uint64_t read_usage(const char* path) {
  std::ifstream file(path);
  uint64_t bytes = 0;
  return file >> bytes ? bytes : 0;
}

}  // namespace

HostMemory host_memory() {
  HostMemory memory{};
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::string unit;
  uint64_t kilobytes = 0;
  while (file >> name >> kilobytes && std::getline(file, unit)) {
    if (name == "MemTotal:") memory.installed = kilobytes * 1024;
    if (name == "MemAvailable:") memory.available = kilobytes * 1024;
  }
  const uint64_t limit = read_limit("/sys/fs/cgroup/memory.max");
  if (limit < memory.installed) {
    memory.installed = limit;
    const uint64_t used = std::min(limit, read_usage("/sys/fs/cgroup/memory.current"));
    memory.available = std::min(memory.available, limit - used);
  }
  return memory;
}

#endif

}  // namespace coxswain

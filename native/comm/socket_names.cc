// Names of the two ends of a socket, for reports and logs.
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "comm/socket.h"

namespace coxswain::comm {
namespace {

// The numeric host of an address, without a scope.
std::string host_text(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  if (getnameinfo(address, size, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "unknown";
  }
  std::string text = host.data();
  return text.substr(0, text.find('%'));
}

std::string interface_of(const std::string& host) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return host;
  std::string found = host;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const sockaddr* address = entry->ifa_addr;
    if (address == nullptr) continue;
    const bool v4 = address->sa_family == AF_INET;
    if (!v4 && address->sa_family != AF_INET6) continue;
    if (host_text(address, v4 ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)) == host) {
      found = entry->ifa_name;
      break;
    }
  }
  freeifaddrs(list);
  return found;
}

}  // namespace

std::string local_interface(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "unknown";
  std::string host = host_text(generic, size);
  // An IPv4 connection to a socket that also speaks IPv6.
  constexpr const char* kMapped = "::ffff:";
  if (host.compare(0, std::strlen(kMapped), kMapped) == 0) host = host.substr(std::strlen(kMapped));
  return interface_of(host);
}

std::string remote_address(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "unknown";
  const uint16_t port = address.ss_family == AF_INET6
                            ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                            : reinterpret_cast<const sockaddr_in*>(&address)->sin_port;
  return host_text(reinterpret_cast<const sockaddr*>(&address), size) + ":" +
         std::to_string(ntohs(port));
}

}  // namespace coxswain::comm

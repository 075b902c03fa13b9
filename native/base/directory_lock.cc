#include "base/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#if defined(__linux__)
#include <sys/vfs.h>
#else
#include <sys/mount.h>
#include <sys/param.h>
#endif
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace coxswain {
namespace {

// On Linux by the file system's magic number, elsewhere by the flag that says local.
bool on_network(const std::string& directory) {
  struct statfs status{};
  if (statfs(directory.c_str(), &status) != 0) return false;  // open() will say why
#if defined(__linux__)
  constexpr std::array<uint32_t, 7> kNetwork = {0x6969u,     0x517bu,     0xff534d42u, 0xfe534d42u,
                                                0x01021997u, 0x00c36400u, 0x0bd00bd0u};
  const auto type = static_cast<uint32_t>(status.f_type);  // NFS SMB CIFS SMB2 9P Ceph Lustre
  for (const uint32_t network : kNetwork) {
    if (type == network) return true;
  }
  return false;
#else
  return (status.f_flags & MNT_LOCAL) == 0;
#endif
}

// What the holder wrote: its pid, or nothing yet.
std::string holder_of(int fd) {
  char text[24] = {};
  const ssize_t n = pread(fd, text, sizeof text - 1, 0);
  if (n <= 0) return "another process";
  return "process " + std::string(text, strcspn(text, "\n"));
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory) {
  if (on_network(directory)) {
    throw EngineError("CONFIG_INVALID", "\"" + directory +
                                            "\" is on a network file system, where a lock may be "
                                            "granted twice; name a directory on a local disk");
  }
  const std::string path = directory + "/lock";
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  const auto fail = [&](const char* what) {
    const std::string reason = std::strerror(errno);
    if (fd_ >= 0) close(fd_);
    throw EngineError("KV_WRITE_FAILED",
                      std::string("cannot ") + what + " \"" + path + "\": " + reason);
  };
  if (fd_ < 0) fail("open");
  while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) fail("lock");
    const std::string holder = holder_of(fd_);
    close(fd_);
    throw EngineError("KV_LOCKED", "\"" + directory + "\" is held by " + holder);
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  if (ftruncate(fd_, 0) != 0 ||
      pwrite(fd_, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    fail("write");
  }
}

DirectoryLock::~DirectoryLock() { close(fd_); }

}  // namespace coxswain

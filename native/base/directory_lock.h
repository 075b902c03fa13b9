// One holder of a directory at a time, across processes: an flock on a file in it. The lock ends
// with the process, however it ends; the file stays.
#pragma once
#include <memory>
#include <string>

namespace coxswain {

class DirectoryLock {
 public:
  // KV_LOCKED names the holder's pid; KV_WRITE_FAILED the system's reason; CONFIG_INVALID on
  // network file systems, where such locks may be granted twice.
  explicit DirectoryLock(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int fd_;
};

}  // namespace coxswain

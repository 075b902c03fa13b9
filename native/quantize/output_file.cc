// POSIX calls behind output_file.h; Linux reserves space and renames without replacing in one step
// each, elsewhere the first write finds a full disk, and the check for an existing file comes
// before the rename.
#include "quantize/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace coxswain::quantize {
namespace {

bool exists(const std::string& path) {
  struct stat status{};
  return lstat(path.c_str(), &status) == 0;
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

[[noreturn]] void already_there(const std::string& path) {
  throw EngineError("FILE_UNREADABLE",
                    "\"" + path + "\" exists already; choose another path or use --force");
}

// 0, or what the system says. Not being able to reserve is no failure: writing will tell.
int reserve(int fd, uint64_t bytes) {
#ifdef __linux__
  if (bytes == 0 || fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0) return 0;
  return errno == ENOSPC || errno == EFBIG || errno == EDQUOT ? errno : 0;
#else
  static_cast<void>(fd);
  static_cast<void>(bytes);
  return 0;
#endif
}

}  // namespace

OutputFile::OutputFile(std::string path, uint64_t bytes, bool replace)
    : path_(std::move(path)), directory_(directory_of(path_)), replace_(replace) {
  if (!replace_ && exists(path_)) already_there(path_);
  temporary_ = path_ + ".partial-" + std::to_string(getpid());
  fd_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("create", errno);
  if (const int error = reserve(fd_, bytes); error != 0) {
    discard();
    fail("reserve " + std::to_string(bytes) + " bytes for", error);
  }
}

OutputFile::~OutputFile() { discard(); }

void OutputFile::write_at(uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("write", errno);
    if (written == 0) fail("write", ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
}

void OutputFile::publish() {
  if (fsync(fd_) != 0) fail("sync", errno);
  const int fd = std::exchange(fd_, -1);
  if (close(fd) != 0 && errno != EINTR) fail("close", errno);
  rename_over();
  const int directory = open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) fail("open the directory of", errno);
  const int result = fsync(directory);
  const int error = errno;
  close(directory);
  // Some file systems have no such sync.
  if (result != 0 && error != EINVAL) fail("sync the directory of", error);
}

// The destructor removes the temporary file where this fails.
void OutputFile::rename_over() {
  int result = -1;
  int error = EINVAL;
#ifdef __linux__
  if (!replace_) {
    result = renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
    error = errno;
  }
#endif
  if (result != 0 && (error == EINVAL || error == ENOSYS)) {
    if (!replace_ && exists(path_)) already_there(path_);
    result = std::rename(temporary_.c_str(), path_.c_str());
    error = errno;
  }
  if (result != 0 && error == EEXIST) already_there(path_);
  if (result != 0) fail("rename", error);
  temporary_.clear();
}

void OutputFile::discard() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
}

void OutputFile::fail(const std::string& doing, int error) const {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  throw EngineError(full ? "DISK_FULL" : "FILE_UNREADABLE",
                    "cannot " + doing + " \"" + path_ + "\": " + std::strerror(error));
}

}  // namespace coxswain::quantize

// Creating, opening, locking and sweeping segments. Memory is reserved at creation: a full file
// system must be a sentence here and not a SIGBUS in a step.
#include "comm/shm_segment.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>

#include "base/error.h"
#include "base/sha256.h"
#include "comm/socket.h"

namespace coxswain::comm {
namespace {

constexpr size_t kRingsAt = 4096;
constexpr size_t kSegmentBytes = kRingsAt + 2 * kRingBytes;
static_assert(sizeof(SegmentState) <= kRingsAt);
// 30 characters in all: some systems allow no more.
constexpr const char* kPrefix = "coxswain-";
constexpr size_t kRandomBytes = 10;
// A younger segment may be on its way from creation to its lock.
constexpr time_t kStaleSeconds = 60;

[[noreturn]] void refuse(const std::string& what, int error) {
  throw EngineError("LINK_PROTOCOL", what + ": " + error_text(error));
}

// Reserves the memory now: a full file system must be an error here, not a SIGBUS later.
int reserve(int fd) {
  if (ftruncate(fd, static_cast<off_t>(kSegmentBytes)) != 0) return errno;
#ifdef __linux__
  return posix_fallocate(fd, 0, static_cast<off_t>(kSegmentBytes));
#else
  return 0;
#endif
}

bool is_segment_name(const std::string& name) {
  const std::string prefix = std::string("/") + kPrefix;
  return name.size() == prefix.size() + 2 * kRandomBytes &&
         name.compare(0, prefix.size(), prefix) == 0 &&
         std::all_of(name.begin() + static_cast<ptrdiff_t>(prefix.size()), name.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

std::unique_ptr<ShmSegment> ShmSegment::create() {
  std::array<std::byte, kRandomBytes> random;
  random_bytes(random);
  const std::string name = std::string("/") + kPrefix + hex(random);
  const int fd = shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600);
  if (fd < 0) refuse("cannot create shared memory", errno);
  std::unique_ptr<ShmSegment> segment(new ShmSegment(name, fd, true));
  random_bytes(segment->state().token);
  return segment;
}

std::unique_ptr<ShmSegment> ShmSegment::open(const std::string& name) {
  if (!is_segment_name(name))
    throw EngineError("LINK_PROTOCOL", "the peer names no segment of ours");
  const int fd = shm_open(name.c_str(), O_RDWR, 0);
  if (fd < 0) refuse("cannot open the peer's shared memory", errno);
  return std::unique_ptr<ShmSegment>(new ShmSegment(name, fd, false));
}

ShmSegment::ShmSegment(std::string name, int fd, bool owner) : name_(std::move(name)) {
  int error = 0;
  struct stat status{};
  if (owner) {
    lock_fd_ = fd;
    flock(fd, LOCK_EX | LOCK_NB);
    error = reserve(fd);
  } else if (fstat(fd, &status) != 0 || static_cast<size_t>(status.st_size) < kSegmentBytes) {
    error = EINVAL;
  }
  if (error == 0) {
    base_ = mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base_ == MAP_FAILED) error = errno;
  }
  if (!owner) ::close(fd);
  if (error == 0) return;
  if (owner) unlink();
  refuse("cannot map " + std::to_string(kSegmentBytes) + " bytes of shared memory", error);
}

ShmSegment::~ShmSegment() {
  unlink();
  munmap(base_, kSegmentBytes);
}

void ShmSegment::unlink() {
  if (lock_fd_ < 0) return;
  shm_unlink(name_.c_str());
  ::close(lock_fd_);
  lock_fd_ = -1;
}

std::byte* ShmSegment::ring_bytes(size_t ring) {
  return static_cast<std::byte*>(base_) + kRingsAt + ring * kRingBytes;
}

void sweep_stale_segments() {
#ifdef __linux__
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    const std::string name = "/" + entry.path().filename().string();
    if (!is_segment_name(name)) continue;
    const Fd fd(::open(entry.path().c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    struct stat status{};
    if (!fd || fstat(fd.get(), &status) != 0 || status.st_uid != geteuid()) continue;
    if (std::time(nullptr) - status.st_mtime < kStaleSeconds) continue;
    if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) shm_unlink(name.c_str());
  }
#endif
}

}  // namespace coxswain::comm

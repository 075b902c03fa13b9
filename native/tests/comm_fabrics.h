// Fabrics for tests: several in one process, opened on threads, full mesh over loopback.
#pragma once
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "comm/fabric.h"
#include "tests/comm_conformance.h"

namespace coxswain::comm::testing {

inline const std::string kDataKey = "0123456789abcdef0123456789abcdef";
inline const std::string kIncarnation = "00112233445566778899aabbccddeeff";

struct Cluster {
  std::vector<std::unique_ptr<SocketFabric>> fabrics;
  explicit Cluster(int count) {
    for (int i = 0; i < count; ++i) fabrics.push_back(make_socket_fabric("127.0.0.1", nullptr));
  }
  EpochSpec spec(int rank, uint64_t epoch, TransportKind kind) const {
    EpochSpec spec;
    spec.epoch = epoch;
    spec.incarnation = kIncarnation;
    spec.rank = rank;
    spec.data_key = kDataKey;
    for (size_t peer = 0; peer < fabrics.size(); ++peer) {
      if (static_cast<int>(peer) == rank) continue;
      spec.links.push_back({static_cast<int>(peer), kind, "127.0.0.1", fabrics[peer]->port()});
    }
    return spec;
  }
};

inline const std::atomic<bool> kNoFence{false};

struct Opened {
  std::unique_ptr<DataPlane> plane;
  std::vector<LinkReport> reports;
  std::string failure;
};

inline Opened open_one(Fabric& fabric, const EpochSpec& spec,
                       const std::atomic<bool>& fence = kNoFence) {
  Opened opened;
  opened.failure = failure_of([&] { opened.plane = fabric.open(spec, fence, &opened.reports); });
  return opened;
}

// Opens all specs at once, one a thread.
inline std::vector<Opened> open_all(Cluster& cluster, const std::vector<EpochSpec>& specs) {
  std::vector<Opened> opened(specs.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < specs.size(); ++i) {
    threads.emplace_back([&, i] { opened[i] = open_one(*cluster.fabrics[i], specs[i]); });
  }
  for (auto& thread : threads) thread.join();
  return opened;
}

inline std::vector<Opened> open_mesh(Cluster& cluster, uint64_t epoch, TransportKind kind) {
  std::vector<EpochSpec> specs;
  for (size_t i = 0; i < cluster.fabrics.size(); ++i) {
    specs.push_back(cluster.spec(static_cast<int>(i), epoch, kind));
  }
  return open_all(cluster, specs);
}

inline Planes planes_over(TransportKind kind, int count) {
  auto cluster = std::make_shared<Cluster>(count);
  Planes planes;
  planes.keeper = cluster;
  for (Opened& opened : open_mesh(*cluster, 3, kind)) {
    CHECK(expect_text(opened.failure, opened.plane != nullptr));
    for (const LinkReport& report : opened.reports) CHECK(report.transport == kind);
    planes.push_back(std::move(opened.plane));
  }
  return planes;
}

// Whether no segment of ours has a name. Another program may be opening links at this moment, so a
// moment without any is enough; what a test leaves behind stays.
inline bool no_segment_is_left() {
  for (int attempt = 0; attempt < 100; ++attempt) {
    size_t count = 0;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
      count += entry.path().filename().string().compare(0, 9, "coxswain-") == 0 ? 1 : 0;
    }
    if (count == 0) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

}  // namespace coxswain::comm::testing

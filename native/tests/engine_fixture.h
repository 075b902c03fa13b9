// What engine tests need: step records by hand, a tiny model file with sane random weights, and
// several engines in one process joined by fake planes.
#pragma once
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <random>

#include "engine/engine.h"
#include "fake_planes.h"
#include "tiny_model.h"
#include "weights/gguf.h"

namespace coxswain::testing {

class RecordBuilder {
 public:
  RecordBuilder(uint64_t epoch, uint64_t step) : epoch_(epoch), step_(step) {}

  RecordBuilder& create(uint32_t slot, const std::vector<uint32_t>& blocks,
                        const std::vector<uint32_t>& tokens = {}) {
    op(1, slot,
       {static_cast<uint32_t>(tokens.size()), static_cast<uint32_t>(blocks.size()),
        static_cast<uint32_t>(tokens.size())});
    append(ops_, blocks);
    append(ops_, tokens);
    return *this;
  }
  RecordBuilder& append_blocks(uint32_t slot, const std::vector<uint32_t>& blocks) {
    op(2, slot, {static_cast<uint32_t>(blocks.size())});
    append(ops_, blocks);
    return *this;
  }
  RecordBuilder& truncate(uint32_t slot, uint32_t length, uint32_t blocks) {
    return op(3, slot, {length, blocks});
  }
  RecordBuilder& drop(uint32_t slot) { return op(4, slot, {}); }
  RecordBuilder& copy(uint32_t from, uint32_t to, uint32_t rows) {
    return op(5, 0, {from, to, rows});
  }
  // Greedy unless changed; stop ids may follow.
  RecordBuilder& sampler(uint32_t slot, uint32_t length_max,
                         const std::vector<uint32_t>& stops = {}) {
    const uint32_t one = 0x3f800000;
    op(6, slot,
       {0, 0, one, 0, one, 0, 0, 0, 0, 0, 0, length_max, 0, 0, static_cast<uint32_t>(stops.size()),
        0, 0, 0,   0, 0,   0, 0});
    append(ops_, stops);
    return *this;
  }
  RecordBuilder& run(uint32_t slot, uint32_t pos0, const std::vector<uint32_t>& tokens) {
    append(runs_, {slot, pos0, static_cast<uint32_t>(tokens.size()), 0});
    append(runs_, tokens);
    ++run_count_;
    return *this;
  }
  RecordBuilder& run_from(uint32_t slot, uint32_t pos0, uint64_t step, uint32_t output) {
    append(runs_, {slot, pos0, 1, 1, static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32),
                   output});
    ++run_count_;
    return *this;
  }
  RecordBuilder& output(uint32_t row, uint32_t want, uint32_t argument = 0) {
    append(outputs_, {row, want, argument});
    ++output_count_;
    return *this;
  }

  std::vector<std::byte> build() const {
    std::vector<uint32_t> words{0x31535843,
                                static_cast<uint32_t>(epoch_),
                                static_cast<uint32_t>(epoch_ >> 32),
                                static_cast<uint32_t>(step_),
                                static_cast<uint32_t>(step_ >> 32),
                                op_count_,
                                run_count_,
                                output_count_};
    append(words, ops_);
    append(words, runs_);
    append(words, outputs_);
    std::vector<std::byte> bytes(words.size() * 4);
    std::memcpy(bytes.data(), words.data(), bytes.size());
    return bytes;
  }

 private:
  RecordBuilder& op(uint32_t kind, uint32_t slot, const std::vector<uint32_t>& words) {
    append(ops_, {kind, slot});
    append(ops_, words);
    ++op_count_;
    return *this;
  }
  static void append(std::vector<uint32_t>& to, const std::vector<uint32_t>& words) {
    to.insert(to.end(), words.begin(), words.end());
  }

  uint64_t epoch_, step_;
  uint32_t op_count_ = 0, run_count_ = 0, output_count_ = 0;
  std::vector<uint32_t> ops_, runs_, outputs_;
};

// The image of `model` with weights of about unit gain (F32 and Q8_0 tensors).
inline std::vector<std::byte> sane_model(const TinyModel& model, uint32_t seed) {
  std::vector<std::byte> image = model.builder().build();
  const auto file = weights::GgufFile::parse(image, "tiny");
  std::mt19937 random(seed);
  for (const weights::TensorInfo& tensor : file->tensors()) {
    std::byte* data = image.data() + (tensor.data - image.data());
    const bool vector = tensor.dim_count == 1;
    if (tensor.type == TensorType::kF32) {
      for (size_t at = 0; at < tensor.bytes; at += 4) {
        const float unit = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
        const float value = vector ? 1.0f + 0.1f * unit : 0.3f * unit;
        std::memcpy(data + at, &value, 4);
      }
    } else {
      for (size_t at = 0; at < tensor.bytes; at += 34) {
        const uint16_t scale = 0x1800;  // 2^-9: int8 values span about a quarter
        std::memcpy(data + at, &scale, 2);
        for (size_t i = 2; i < 34; ++i) data[at + i] = static_cast<std::byte>(random() & 0xff);
      }
    }
  }
  return image;
}

class ModelFile {
 public:
  explicit ModelFile(const TinyModel& model, uint32_t seed = 1) {
    char name[] = "/tmp/cox-engine-test-XXXXXX";
    const int descriptor = mkstemp(name);
    path_ = name;
    close(descriptor);
    const std::vector<std::byte> image = sane_model(model, seed);
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(image.data()),
               static_cast<std::streamsize>(image.size()));
  }
  ~ModelFile() { unlink(path_.c_str()); }
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Engines of all ranks of a topology and the events they sent.
class TestCluster {
 public:
  TestCluster(const std::string& path, const weights::Topology& topology, int threads,
              int64_t rows_max = 64) {
    const int ranks = static_cast<int>(topology.split.size()) * topology.pp;
    for (int rank = 0; rank < ranks; ++rank) {
      engine::EngineOptions options;
      options.path = path;
      options.topology = topology;
      options.rank = rank;
      options.threads = threads;
      options.kv_blocks = 8;
      options.slots_max = 4;
      options.step_rows_max = rows_max;
      options.share_cores = true;
      engines_.push_back(engine::Engine::load(options, [this, rank](engine::EngineEvent event) {
        const std::lock_guard lock(mutex_);
        events_[{rank, event.step}] = std::move(event);
        changed_.notify_all();
      }));
    }
    leader_ = (topology.pp - 1) * static_cast<int>(topology.split.size());
  }

  void begin_epoch(uint64_t epoch, std::vector<std::unique_ptr<comm::DataPlane>> planes) {
    {
      const std::lock_guard lock(mutex_);
      events_.clear();
    }
    for (size_t rank = 0; rank < engines_.size(); ++rank) {
      engines_[rank]->begin_epoch(std::move(planes[rank]), 1);
    }
    (void)epoch;
  }
  void begin_epoch(uint64_t epoch) {
    begin_epoch(epoch, comm::make_fake_planes(static_cast<int>(engines_.size()), epoch));
  }

  void submit(const RecordBuilder& record) {
    for (auto& one : engines_) one->submit(record.build());
  }
  // The event of `rank` for `step`; a missing one fails the test after 20 s.
  engine::EngineEvent wait(int rank, uint64_t step) {
    std::unique_lock lock(mutex_);
    const bool came = changed_.wait_for(lock, std::chrono::seconds(20),
                                        [&] { return events_.count({rank, step}) > 0; });
    if (!came) {
      std::fprintf(stderr, "no event of rank %d for step %llu\n", rank,
                   static_cast<unsigned long long>(step));
      std::abort();
    }
    return events_[{rank, step}];
  }
  engine::EngineEvent wait_leader(uint64_t step) { return wait(leader_, step); }
  bool has_event(int rank, uint64_t step) {
    const std::lock_guard lock(mutex_);
    return events_.count({rank, step}) > 0;
  }
  engine::Engine& engine(int rank) { return *engines_[static_cast<size_t>(rank)]; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, uint64_t>, engine::EngineEvent> events_;
  int leader_ = 0;
  std::vector<std::unique_ptr<engine::Engine>> engines_;  // last: destroyed before what events use
};

inline uint32_t word_at(const std::vector<std::byte>& bytes, size_t word) {
  uint32_t value = 0;
  if (word * 4 + 4 <= bytes.size()) std::memcpy(&value, bytes.data() + word * 4, 4);
  return value;
}

}  // namespace coxswain::testing

// This rank's weights in memory: block types repacked for int8 activations (this rank's slice
// only), vectors as floats, everything else as views of the mapped file. Immutable after
// construction; packing runs on the given pool and releases the file's pages behind it.
#pragma once
#include <memory>
#include <vector>

#include "engine/thread_pool.h"
#include "models/items.h"

namespace coxswain::engine {

struct Matrix {
  TensorType type;
  int64_t rows, k;
  const std::byte* packed = nullptr;  // packed layout, or
  const std::byte* file = nullptr;    // first row of the view in file layout (column 0 of the file)
  size_t row_bytes = 0;
  int64_t k0 = 0;
};

class WeightStore {
 public:
  WeightStore(const weights::GgufFile& file, const models::Model& model, ThreadPool& pool);
  ~WeightStore();
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;

  const Matrix& matrix(models::WeightId id) const { return matrices_[static_cast<size_t>(id)]; }
  const float* vector(models::VectorId id) const {
    return id == models::kNone ? nullptr : vectors_[static_cast<size_t>(id)].data();
  }

 private:
  void reserve(const models::Model& model);
  void pack(const weights::GgufFile& file, const models::Model& model, ThreadPool& pool);

  std::vector<Matrix> matrices_;
  std::vector<std::vector<float>> vectors_;
  std::byte* arena_ = nullptr;
  uint64_t packed_bytes_ = 0;
};

}  // namespace coxswain::engine

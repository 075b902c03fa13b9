#include "engine/weight_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "kernels/kernels.h"

namespace coxswain::engine {
namespace {

constexpr uint64_t kAlign = 64;
constexpr int64_t kPackRows = 512;  // rows of one piece; a multiple of the 16-row group

uint64_t aligned(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

WeightStore::WeightStore(const weights::GgufFile& file, const models::Model& model,
                         ThreadPool& pool) {
  for (const models::VectorView& view : model.vectors) {
    const weights::TensorInfo& tensor = *view.tensor;
    if (is_block_type(tensor.type)) {
      throw EngineError("MODEL_UNSUPPORTED",
                        "vector " + tensor.name + " has a block-quantised type");
    }
    std::vector<float>& values = vectors_.emplace_back(static_cast<size_t>(view.count));
    kernels::dequantize_row(tensor.type, tensor.data, view.begin, view.count, values.data());
  }
  reserve(model);
  pack(file, model, pool);
}

WeightStore::~WeightStore() {
  if (arena_ != nullptr) munmap(arena_, packed_bytes_);
}

void WeightStore::reserve(const models::Model& model) {
  std::vector<uint64_t> offsets;
  for (const models::WeightView& view : model.weights) {
    offsets.push_back(packed_bytes_);
    if (view.packed) {
      packed_bytes_ += aligned(kernels::packed_bytes(view.tensor->type, view.row_count, view.k));
    }
  }
  if (packed_bytes_ > 0) {
    void* memory =
        mmap(nullptr, packed_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw EngineError("MEMORY_EXHAUSTED",
                        "cannot reserve " + std::to_string(packed_bytes_) + " bytes for weights");
    }
    arena_ = static_cast<std::byte*>(memory);
#ifdef MADV_HUGEPAGE
    madvise(memory, packed_bytes_, MADV_HUGEPAGE);
#endif
  }
  for (size_t i = 0; i < model.weights.size(); ++i) {
    const models::WeightView& view = model.weights[i];
    Matrix matrix{view.tensor->type, view.row_count, view.k};
    if (view.packed) {
      matrix.packed = arena_ + offsets[i];
    } else {
      matrix.row_bytes = view.tensor->row_bytes;
      matrix.file = view.tensor->data + static_cast<size_t>(view.row_begin) * matrix.row_bytes;
      matrix.k0 = view.k0;
    }
    matrices_.push_back(matrix);
  }
}

void WeightStore::pack(const weights::GgufFile& file, const models::Model& model,
                       ThreadPool& pool) {
  struct Piece {
    const models::WeightView* view;
    std::byte* packed;
    int64_t row0, rows;
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < model.weights.size(); ++i) {
    const models::WeightView& view = model.weights[i];
    if (!view.packed) continue;
    std::byte* packed = arena_ + (matrices_[i].packed - arena_);
    for (int64_t row = 0; row < view.row_count; row += kPackRows) {
      pieces.push_back({&view, packed, row, std::min(kPackRows, view.row_count - row)});
    }
  }
  pool.run(static_cast<int64_t>(pieces.size()), [&](int64_t index, int) {
    const Piece& piece = pieces[static_cast<size_t>(index)];
    const models::WeightView& view = *piece.view;
    const size_t row_bytes = view.tensor->row_bytes;
    const std::byte* source =
        view.tensor->data + static_cast<size_t>(view.row_begin + piece.row0) * row_bytes;
    kernels::pack_rows(view.tensor->type, source, row_bytes, view.k0, view.k, piece.row0,
                       piece.rows, piece.packed);
    file.release_pages(source, static_cast<size_t>(piece.rows) * row_bytes);
  });
}

}  // namespace coxswain::engine

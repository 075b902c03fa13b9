// Threads take chunks of consecutive elements in file order from one counter; a chunk's blocks go
// to their place in the output at once. Rows are whole blocks in both types, so chunks need not end
// with rows.
#include "quantize/quantize.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "kernels/kernels.h"
#include "quantize/blocks.h"
#include "quantize/output_file.h"
#include "weights/gguf_cursor.h"

namespace coxswain::quantize {
namespace {

using weights::GgufFile;
using weights::TensorInfo;

constexpr int64_t kChunk = 1 << 16;  // elements; a multiple of every block
constexpr float kLargestHalf = 65504.0f;
constexpr uint32_t kQuantizationVersion = 2;
constexpr uint64_t kReports = 256;  // progress calls in all

int64_t elements_of(const TensorInfo& tensor) { return tensor.dims[0] * tensor.rows(); }
int64_t chunks_of(const TensorInfo& tensor) { return (elements_of(tensor) + kChunk - 1) / kChunk; }

// Buffers of one thread.
struct Desk {
  std::vector<float> floats = std::vector<float>(kChunk);
  std::vector<uint8_t> blocks = std::vector<uint8_t>(kChunk * sizeof(float));
};

class Run {
 public:
  Run(const GgufFile& file, const QuantizePlan& plan, const QuantizeRun& run)
      : file_(file), plan_(plan), run_(run), out_(run.out, plan.layout.file_bytes, run.replace) {
    first_chunk_.push_back(0);
    for (const TensorInfo& tensor : file.tensors()) {
      first_chunk_.push_back(first_chunk_.back() + chunks_of(tensor));
      total_ += static_cast<uint64_t>(elements_of(tensor));
    }
  }

  void operator()() {
    out_.write_at(0, plan_.layout.head);
    write_padding();
    const int64_t useful = std::clamp<int64_t>(first_chunk_.back(), 1, run_.threads);
    std::vector<std::thread> threads;
    for (int64_t i = 1; i < useful; ++i) threads.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
    if (cancelled()) throw EngineError("REQUEST_CANCELLED", "interrupted; nothing was written");
    out_.publish();
    if (run_.on_progress) run_.on_progress(total_, total_);
  }

 private:
  bool cancelled() const { return run_.cancelled != nullptr && *run_.cancelled; }

  // Between tensors and after the last; the reserved space need not be zeros on every file system.
  void write_padding() {
    const std::vector<uint64_t>& position = plan_.layout.position;
    for (size_t i = 0; i < position.size(); ++i) {
      const uint64_t end = position[i] + plan_.steps[i].target.bytes;
      const uint64_t next = i + 1 < position.size() ? position[i + 1] : plan_.layout.file_bytes;
      out_.write_at(end, std::vector<std::byte>(static_cast<size_t>(next - end)));
    }
  }

  void work() {
    try {
      Desk desk;
      while (!cancelled() && !failed_) {
        const int64_t chunk = next_chunk_++;
        if (chunk >= first_chunk_.back()) return;
        const auto after = std::upper_bound(first_chunk_.begin(), first_chunk_.end(), chunk);
        const auto tensor = static_cast<size_t>(after - first_chunk_.begin()) - 1;
        convert(tensor, (chunk - first_chunk_[tensor]) * kChunk, desk);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      failed_ = true;
    }
  }

  void convert(size_t index, int64_t first, Desk& desk) {
    const TensorInfo& source = file_.tensors()[index];
    const TensorType type = plan_.steps[index].target.type;
    const int64_t count = std::min(kChunk, elements_of(source) - first);
    const std::byte* from = source.data + row_bytes(source.type, first);
    const size_t from_bytes = row_bytes(source.type, count);
    const uint64_t to = plan_.layout.position[index] + row_bytes(type, first);
    if (type == source.type) {
      out_.write_at(to, {from, from_bytes});
    } else {
      kernels::dequantize_row(source.type, from, 0, count, desk.floats.data());
      check_values(source, type, first, {desk.floats.data(), static_cast<size_t>(count)});
      quantize_blocks(type, desk.floats.data(), count, desk.blocks.data());
      out_.write_at(to, std::as_bytes(std::span(desk.blocks.data(), row_bytes(type, count))));
    }
    file_.release_pages(from, from_bytes);
    report(static_cast<uint64_t>(count));
  }

  static void check_values(const TensorInfo& tensor, TensorType type, int64_t first,
                           std::span<const float> values) {
    const bool wide = type == TensorType::kF32 || type == TensorType::kBF16;
    for (size_t i = 0; i < values.size(); ++i) {
      const bool fits = std::isfinite(values[i]) && (wide || std::fabs(values[i]) <= kLargestHalf);
      if (fits) continue;
      const std::string fact = std::isfinite(values[i])
                                   ? " is beyond 65504, the largest half float; use F32 or BF16"
                                   : " is not finite";
      throw EngineError("GGUF_INVALID", "tensor " + weights::quoted(tensor.name) + ": element " +
                                            std::to_string(first + static_cast<int64_t>(i)) + fact);
    }
  }

  void report(uint64_t count) {
    const uint64_t before = done_.fetch_add(count);
    const uint64_t step = std::max<uint64_t>(1, total_ / kReports);
    if (run_.on_progress && before / step != (before + count) / step) {
      run_.on_progress(before + count, total_);
    }
  }

  const GgufFile& file_;
  const QuantizePlan& plan_;
  const QuantizeRun& run_;
  OutputFile out_;
  std::vector<int64_t> first_chunk_;  // of each tensor, and one past the last
  uint64_t total_ = 0;
  std::atomic<int64_t> next_chunk_ = 0;
  std::atomic<uint64_t> done_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::exception_ptr failure_;  // the first; under mutex_
};

}  // namespace

QuantizePlan plan_quantization(const GgufFile& file, const Scheme& scheme, bool pure) {
  const ModelFacts facts = facts_of(file);
  QuantizePlan plan{{}, {}, false};
  std::vector<NewTensor> targets;
  for (const TensorInfo& tensor : file.tensors()) {
    const TensorChoice choice = choose_type(tensor, scheme, pure, facts);
    const uint64_t row = row_bytes(choice.type, tensor.dims[0]);
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(row, static_cast<uint64_t>(tensor.rows()), &bytes)) {
      throw EngineError("GGUF_INVALID", "tensor " + weights::quoted(tensor.name) +
                                            " would be larger than 64 bits can count");
    }
    plan.requantizes |=
        is_block_type(tensor.type) && is_block_type(choice.type) && tensor.type != choice.type;
    targets.push_back({tensor.name, choice.type, tensor.dims, tensor.dim_count, bytes});
    plan.steps.push_back({targets.back(), tensor.type, tensor.bytes, choice.note});
  }
  plan.layout = lay_out(file,
                        {{"general.file_type", scheme.file_type},
                         {"general.quantization_version", kQuantizationVersion}},
                        targets);
  return plan;
}

void run_quantization(const GgufFile& file, const QuantizePlan& plan, const QuantizeRun& run) {
  COX_CHECK(run.threads >= 1 && run.threads <= 1024, "the caller has checked the threads");
  Run(file, plan, run)();
}

}  // namespace coxswain::quantize

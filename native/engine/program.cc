// Compiles lists into phases in one walk, then places all buffers by their lifetimes in phases.
#include "engine/program.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/error.h"

namespace coxswain::engine {

using models::BufferId;
using models::RowDomain;

class ProgramCompiler {
 public:
  ProgramCompiler(const models::Model& model, const WeightStore& weights, int64_t rows_max,
                  Program& program)
      : model_(model), weights_(weights), rows_max_(rows_max), program_(program) {
    lifetimes_.resize(2 * model.buffers.size());
  }

  void compile() {
    phases_ = &program_.trunk_;
    for (const models::Item& item : model_.embed) add(item);
    for (const models::Item& item : model_.trunk) add(item);
    phases_ = &program_.head_;
    for (const models::Item& item : model_.head) add(item);
    // Read after the trunk by the executor: digests, and once for every window of the head.
    touch(model_.hidden_outputs);
    place_buffers();
    for (std::vector<Phase>* list : {&program_.trunk_, &program_.head_}) {
      for (Phase& phase : *list) resolve(phase);
    }
    program_.hidden_outputs_ = resolved(model_.hidden_outputs);
    program_.logits_ = resolved(model_.logits);
  }

 private:
  struct Lifetime {
    int64_t first = -1, last = -1;
    uint64_t offset = 0, bytes = 0;
  };

  void add(const models::Item& item) {
    std::visit([this](const auto& op) { add_item(op); }, item);
  }

  void add_item(const models::Embed& op) {
    RowOp row{.kind = RowOpKind::kEmbed};
    row.table = &weights_.matrix(op.table);
    add_row_op(row, op.out, {op.out});
  }
  void add_item(const models::RmsNorm& op) {
    RowOp row{.kind = RowOpKind::kRmsNorm};
    row.a.id = op.in;
    row.weight = weights_.vector(op.weight);
    add_row_op(row, op.out, {op.in, op.out});
  }
  void add_item(const models::HeadNorm& op) {
    RowOp row{.kind = RowOpKind::kHeadNorm};
    row.heads = op.heads;
    row.weight = weights_.vector(op.weight);
    add_row_op(row, op.x, {op.x});
  }
  void add_item(const models::Rope& op) {
    RowOp row{.kind = RowOpKind::kRope};
    row.heads = op.heads;
    add_row_op(row, op.x, {op.x});
  }
  void add_item(const models::StoreKv& op) {
    RowOp row{.kind = RowOpKind::kStoreKv};
    row.a.id = op.k;
    row.b.id = op.v;
    row.layer = op.layer;
    add_row_op(row, op.k, {op.k, op.v});
  }
  void add_item(const models::Add& op) {
    RowOp row{.kind = RowOpKind::kAdd};
    row.a.id = op.y;
    add_row_op(row, op.x, {op.x, op.y});
  }
  void add_item(const models::Zero& op) { add_row_op({.kind = RowOpKind::kZero}, op.x, {op.x}); }
  void add_item(const models::TakeOutputs& op) {
    RowOp row{.kind = RowOpKind::kTake};
    row.a.id = op.in;
    add_row_op(row, op.out, {op.in, op.out});
  }

  void add_item(const models::SwiGlu& op) {
    if (!phases_->empty()) {
      Phase& last = phases_->back();
      if (last.kind == PhaseKind::kMatMul && !last.swiglu && last.matmuls.size() == 2 &&
          last.matmuls[0].out.id == op.gate && last.matmuls[1].out.id == op.up) {
        last.swiglu = true;
        last.activated.id = op.out;
        touch(op.out);
        written(op.out);
        return;
      }
    }
    RowOp row{.kind = RowOpKind::kSwiGlu};
    row.a.id = op.gate;
    row.b.id = op.up;
    add_row_op(row, op.out, {op.gate, op.up, op.out});
  }

  void add_item(const models::MatMul& op) {
    const Matrix& matrix = weights_.matrix(op.weight);
    MatMulOp matmul{&matrix, weights_.vector(op.bias), {}, {}, {}, op.chunk};
    matmul.in.id = op.in;
    matmul.out.id = op.out;
    if (matrix.packed != nullptr) {
      quantize(op.in);
      matmul.quantized.of = op.in;
    }
    const bool joins = !phases_->empty() && phases_->back().kind == PhaseKind::kMatMul &&
                       !phases_->back().swiglu && phases_->back().matmuls[0].in.id == op.in;
    if (!joins) begin_phase(PhaseKind::kMatMul, op.out);
    phases_->back().matmuls.push_back(matmul);
    touch(op.in);
    touch(op.out);
    if (matrix.packed != nullptr) touch_quantized(op.in);
    written(op.out);
  }

  void add_item(const models::Attention& op) {
    begin_phase(PhaseKind::kAttention, op.out);
    Phase& phase = phases_->back();
    phase.q.id = op.q;
    phase.mixed.id = op.out;
    phase.layer = op.layer;
    touch(op.q);
    touch(op.out);
    written(op.out);
  }

  void add_item(const models::AllReduceStart& op) {
    add_sync(PhaseKind::kAllReduce, op.partial, -1);
    Phase& phase = phases_->back();
    phase.layer = op.layer;
    phase.name = op.phase;
    phase.sum.id = op.sum;
    touch(op.sum);
    written(op.sum);
  }
  void add_item(const models::AllReduceFinish& op) {
    COX_CHECK(!phases_->empty() && phases_->back().kind == PhaseKind::kAllReduce &&
                  phases_->back().sum.id == op.sum,
              "an all-reduce finishes directly after its start");
  }
  void add_item(const models::SendBoundary& op) { add_sync(PhaseKind::kSend, op.x, op.peer); }
  void add_item(const models::RecvBoundary& op) { add_sync(PhaseKind::kRecv, op.x, op.peer); }

  void add_sync(PhaseKind kind, BufferId buffer, int peer) {
    begin_phase(kind, buffer);
    Phase& phase = phases_->back();
    phase.buffer.id = buffer;
    phase.peer = peer;
    phase.name = "boundary";
    touch(buffer);
    if (kind == PhaseKind::kRecv) written(buffer);
  }

  void add_row_op(RowOp row, BufferId out, std::initializer_list<BufferId> touched) {
    row.out.id = out;
    const bool joins = !phases_->empty() && phases_->back().kind == PhaseKind::kRows &&
                       phases_->back().rows == domain(out);
    if (!joins) begin_phase(PhaseKind::kRows, out);
    Phase& phase = phases_->back();
    phase.row_ops.push_back(row);
    for (const BufferId buffer : touched) {
      touch(buffer);
      phase.row_cost += model_.buffers[static_cast<size_t>(buffer)].width;
    }
    if (row.kind != RowOpKind::kStoreKv) written(out);
  }

  // Makes sure that int8 rows of the buffer exist when the next phase begins.
  void quantize(BufferId buffer) {
    if (quantized_fresh(buffer)) return;
    RowOp row{.kind = RowOpKind::kQuantize};
    row.a.id = buffer;
    row.quantized.of = buffer;
    const bool joins = !phases_->empty() && phases_->back().kind == PhaseKind::kRows &&
                       phases_->back().rows == domain(buffer);
    if (!joins) begin_phase(PhaseKind::kRows, buffer);
    phases_->back().row_ops.push_back(row);
    phases_->back().row_cost += model_.buffers[static_cast<size_t>(buffer)].width;
    touch(buffer);
    touch_quantized(buffer);
    fresh_.push_back(buffer);
  }

  bool quantized_fresh(BufferId buffer) const {
    return std::find(fresh_.begin(), fresh_.end(), buffer) != fresh_.end();
  }
  void written(BufferId buffer) { std::erase(fresh_, buffer); }

  void begin_phase(PhaseKind kind, BufferId out) {
    Phase phase{.kind = kind, .rows = domain(out)};
    phases_->push_back(std::move(phase));
    ++phase_count_;
  }

  RowDomain domain(BufferId buffer) const {
    return model_.buffers[static_cast<size_t>(buffer)].rows;
  }
  int64_t rows_of(RowDomain domain) const {
    return domain == RowDomain::kHead ? std::min(rows_max_, models::kHeadRows) : rows_max_;
  }

  // Entry b is buffer b, entry count + b its int8 rows.
  void touch(BufferId buffer) {
    if (buffer == models::kNone) return;
    const models::Buffer& spec = model_.buffers[static_cast<size_t>(buffer)];
    extend(static_cast<size_t>(buffer),
           static_cast<uint64_t>(spec.width) * (spec.f64 ? sizeof(double) : sizeof(float)),
           spec.rows);
  }
  void touch_quantized(BufferId buffer) {
    const models::Buffer& spec = model_.buffers[static_cast<size_t>(buffer)];
    extend(model_.buffers.size() + static_cast<size_t>(buffer),
           kernels::quantized_row_bytes(spec.width), spec.rows);
  }
  void extend(size_t entry, uint64_t row_bytes, RowDomain domain) {
    Lifetime& life = lifetimes_[entry];
    if (life.first < 0) {
      life.first = phase_count_;
      uint64_t bytes = 0;
      if (__builtin_mul_overflow(row_bytes, static_cast<uint64_t>(rows_of(domain)), &bytes)) {
        throw EngineError("MEMORY_EXHAUSTED", "activation buffers exceed every address space");
      }
      life.bytes = (bytes + 63) / 64 * 64;
    }
    life.last = phase_count_;
  }

  // First fit in order of birth; two buffers share bytes only when no phase touches both.
  void place_buffers() {
    std::vector<Lifetime*> order;
    for (Lifetime& life : lifetimes_) {
      if (life.first >= 0) order.push_back(&life);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const Lifetime* a, const Lifetime* b) { return a->first < b->first; });
    std::vector<Lifetime*> placed;  // by offset
    for (Lifetime* life : order) {
      std::erase_if(placed, [&](const Lifetime* other) { return other->last < life->first; });
      uint64_t offset = 0;
      auto at = placed.begin();
      for (; at != placed.end() && (*at)->offset < offset + life->bytes; ++at) {
        offset = (*at)->offset + (*at)->bytes;
      }
      life->offset = offset;
      placed.insert(at, life);
      program_.arena_bytes_ = std::max(program_.arena_bytes_, offset + life->bytes);
    }
    if (program_.arena_bytes_ == 0) return;
    void* memory = mmap(nullptr, program_.arena_bytes_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw EngineError(
          "MEMORY_EXHAUSTED",
          "cannot reserve " + std::to_string(program_.arena_bytes_) + " bytes for activations");
    }
    program_.arena_ = static_cast<std::byte*>(memory);
  }

  Operand resolved(BufferId id) const {
    Operand operand;
    operand.id = id;
    if (id == models::kNone) return operand;
    const size_t index = static_cast<size_t>(id);
    operand.width = model_.buffers[index].width;
    operand.f64 = model_.buffers[index].f64;
    operand.data = reinterpret_cast<float*>(program_.arena_ + lifetimes_[index].offset);
    return operand;
  }

  void resolve(Operand& operand, RowDomain phase_rows) const {
    const BufferId id = operand.id;
    if (id == models::kNone) return;
    operand = resolved(id);
    operand.windowed = phase_rows == RowDomain::kHead && domain(id) == RowDomain::kOutput;
  }

  void resolve(QuantizedOperand& operand) const {
    if (operand.of == models::kNone) return;
    const size_t index = static_cast<size_t>(operand.of);
    operand.row_bytes = kernels::quantized_row_bytes(model_.buffers[index].width);
    operand.data = program_.arena_ + lifetimes_[model_.buffers.size() + index].offset;
  }

  void resolve(Phase& phase) const {
    for (RowOp& op : phase.row_ops) {
      resolve(op.a, phase.rows);
      resolve(op.b, phase.rows);
      resolve(op.out, phase.rows);
      resolve(op.quantized);
    }
    for (MatMulOp& op : phase.matmuls) {
      resolve(op.in, phase.rows);
      resolve(op.out, phase.rows);
      resolve(op.quantized);
    }
    resolve(phase.activated, phase.rows);
    resolve(phase.q, phase.rows);
    resolve(phase.mixed, phase.rows);
    resolve(phase.buffer, phase.rows);
    resolve(phase.sum, phase.rows);
  }

  const models::Model& model_;
  const WeightStore& weights_;
  int64_t rows_max_;
  Program& program_;
  std::vector<Phase>* phases_ = nullptr;
  int64_t phase_count_ = 0;
  std::vector<Lifetime> lifetimes_;
  std::vector<BufferId> fresh_;  // buffers whose int8 rows are up to date
};

Program::Program(const models::Model& model, const WeightStore& weights, int64_t step_rows_max) {
  ProgramCompiler(model, weights, step_rows_max, *this).compile();
}

Program::~Program() {
  if (arena_ != nullptr) munmap(arena_, arena_bytes_);
}

}  // namespace coxswain::engine

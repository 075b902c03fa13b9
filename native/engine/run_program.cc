#include "engine/run_program.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"

namespace coxswain::engine {

using models::RowDomain;

namespace {

// Below this many floats a chain of row ops costs less than waking the pool for it.
constexpr int64_t kSerialFloats = 16384;
// Multiply-adds of one matmul piece: small enough to balance, large enough that a thread streams
// weights for a while (short pieces cost the prefetcher its run-up).
constexpr int64_t kPieceWork = 96 * 1024;
constexpr int64_t kPiecesPerThread = 8;
constexpr int64_t kMatMulRowTile = 64;
constexpr int64_t kAttentionRowTile = 16;
constexpr int64_t kSerialAttention = 16384;  // multiply-adds

float* row_of(const Operand& operand, int64_t row, int64_t window_begin) {
  return operand.data + (operand.windowed ? row + window_begin : row) * operand.width;
}

double* partials_of(const Operand& operand, int64_t row) {
  return reinterpret_cast<double*>(operand.data) + row * operand.width;
}

int64_t groups_of(int64_t rows) { return (rows + kernels::kRowGroup - 1) / kernels::kRowGroup; }

}  // namespace

ProgramRunner::ProgramRunner(const models::Model& model, const Program& program, KvBlocks& kv,
                             ThreadPool& pool, kernels::Isa isa, int64_t context)
    : model_(model), program_(program), kv_(kv), pool_(pool), kernels_(kernels::kernels_for(isa)) {
  // Pieces hold one head or a whole group, and which needs more is no matter of size: a tile of
  // single heads has 16 queries, one of groups of three has 15.
  int64_t attention = kernels::attention_scratch_floats(1, model.head_dim);
  for (const models::HeadGroup& group : model.head_groups) {
    attention =
        std::max(attention, kernels::attention_scratch_floats(group.head_count, model.head_dim));
  }
  int64_t widest = 0;
  for (const models::WeightView& view : model.weights) widest = std::max(widest, view.k);
  const size_t blocks = static_cast<size_t>(context / kernels::kKvBlockTokens + 1);
  scratch_.resize(static_cast<size_t>(pool.threads()));
  for (ThreadScratch& scratch : scratch_) {
    scratch.attention.resize(static_cast<size_t>(attention));
    scratch.dequantized.resize(static_cast<size_t>(widest));
    scratch.keys.resize(blocks);
    scratch.values.resize(blocks);
  }
}

void ProgramRunner::prepare(Batch& batch) {
  const int64_t half = model_.n_rot / 2;
  batch.cos.resize(static_cast<size_t>(batch.rows() * half));
  batch.sin.resize(static_cast<size_t>(batch.rows() * half));
  constexpr int64_t kRows = 16;
  pool_.run((batch.rows() + kRows - 1) / kRows, [&](int64_t piece, int) {
    const int64_t end = std::min(batch.rows(), (piece + 1) * kRows);
    for (int64_t row = piece * kRows; row < end; ++row) {
      const double position = static_cast<double>(batch.positions[static_cast<size_t>(row)]);
      for (int64_t i = 0; i < half; ++i) {
        double sine = 0, cosine = 0;
        kernels::exact_sincos(position * model_.rope.frequency[static_cast<size_t>(i)], &sine,
                              &cosine);
        batch.cos[static_cast<size_t>(row * half + i)] =
            static_cast<float>(cosine * model_.rope.magnitude);
        batch.sin[static_cast<size_t>(row * half + i)] =
            static_cast<float>(sine * model_.rope.magnitude);
      }
    }
  });
  batch.pieces.clear();
  int64_t tiles = 0;
  for (const BatchRun& run : batch.runs)
    tiles += (run.n + kAttentionRowTile - 1) / kAttentionRowTile;
  // Few pieces for the threads: those that would be left over are cut into single heads. The others
  // stay whole, since the heads of a group read the same keys and values.
  const int64_t group_count = static_cast<int64_t>(model_.head_groups.size());
  const int64_t pieces = tiles * group_count;
  const int64_t threads = pool_.threads();
  int64_t whole = pieces < 4 * threads ? pieces / threads * threads : pieces;
  for (size_t index = 0; index < batch.runs.size(); ++index) {
    const BatchRun& run = batch.runs[index];
    // Late rows see the most positions: they go first, so that no long piece is left for the end.
    for (int64_t tile = (run.n - 1) / kAttentionRowTile; tile >= 0; --tile) {
      const int64_t row0 = tile * kAttentionRowTile;
      const int64_t rows = std::min(kAttentionRowTile, run.n - row0);
      for (const models::HeadGroup& group : model_.head_groups) {
        const int64_t step = whole-- > 0 ? group.head_count : 1;
        for (int64_t head = 0; head < group.head_count; head += step) {
          batch.pieces.push_back({static_cast<int32_t>(index), static_cast<int32_t>(row0),
                                  static_cast<int32_t>(rows), static_cast<int32_t>(group.kv_head),
                                  static_cast<int32_t>(group.head_begin + head),
                                  static_cast<int32_t>(step)});
        }
      }
    }
  }
}

void ProgramRunner::run_trunk(const Batch& batch, comm::DataPlane& plane,
                              std::span<const int> group, const StepWait& wait,
                              const std::atomic<bool>& fence, std::atomic<uint32_t>& item) {
  const Window window;
  uint32_t index = 0;
  for (const Phase& phase : program_.trunk()) {
    item.store(++index, std::memory_order_relaxed);
    if (fence.load(std::memory_order_relaxed)) {
      throw EngineError("EPOCH_FENCED", "the epoch was fenced before step " +
                                            std::to_string(wait.step) + " was done");
    }
    const int64_t rows = row_count(phase, batch, window);
    if (rows == 0) continue;
    if (phase.kind == PhaseKind::kRows || phase.kind == PhaseKind::kMatMul ||
        phase.kind == PhaseKind::kAttention) {
      run_compute(phase, batch, window);
      continue;
    }
    comm::Wait sync;
    sync.deadline_ns = now_ns() + wait.patience_ns;
    sync.spin_ns = wait.spin_ns;
    sync.fence = &fence;
    sync.step = wait.step;
    sync.layer = static_cast<int>(phase.layer);
    sync.phase = phase.name;
    const size_t count = static_cast<size_t>(rows * phase.buffer.width);
    const std::span<float> data(phase.buffer.data, count);
    if (phase.kind == PhaseKind::kAllReduce) {
      plane.all_reduce(group, {partials_of(phase.buffer, 0), count}, {phase.sum.data, count}, sync);
    } else if (phase.kind == PhaseKind::kSend) {
      plane.send(phase.peer, std::as_bytes(data), sync);
    } else {
      plane.recv(phase.peer, std::as_writable_bytes(data), sync);
    }
  }
}

void ProgramRunner::run_head(const Batch& batch, int64_t begin, int64_t rows) {
  for (const Phase& phase : program_.head()) run_compute(phase, batch, {begin, rows});
}

int64_t ProgramRunner::row_count(const Phase& phase, const Batch& batch,
                                 const Window& window) const {
  switch (phase.rows) {
    case RowDomain::kAll:
      return batch.rows();
    case RowDomain::kOutput:
      return batch.outputs();
    case RowDomain::kHead:
      return window.rows;
  }
  return 0;
}

void ProgramRunner::run_compute(const Phase& phase, const Batch& batch, const Window& window) {
  if (phase.kind == PhaseKind::kRows) {
    run_rows(phase, batch, window);
  } else if (phase.kind == PhaseKind::kMatMul) {
    run_matmul(phase, window, row_count(phase, batch, window));
  } else {
    run_attention(phase, batch);
  }
}

void ProgramRunner::run_rows(const Phase& phase, const Batch& batch, const Window& window) {
  const int64_t rows = row_count(phase, batch, window);
  if (pool_.threads() == 1 || rows * phase.row_cost < kSerialFloats) {
    for (int64_t row = 0; row < rows; ++row) {
      for (const RowOp& op : phase.row_ops) run_row_op(op, batch, window, row);
    }
    return;
  }
  const int64_t pieces = std::min(rows, pool_.threads() * kPiecesPerThread);
  pool_.run(pieces, [&](int64_t piece, int) {
    for (int64_t row = rows * piece / pieces; row < rows * (piece + 1) / pieces; ++row) {
      for (const RowOp& op : phase.row_ops) run_row_op(op, batch, window, row);
    }
  });
}

void ProgramRunner::run_row_op(const RowOp& op, const Batch& batch, const Window& window,
                               int64_t row) const {
  const size_t index = static_cast<size_t>(row);
  float* out = row_of(op.out, row, window.begin);
  switch (op.kind) {
    case RowOpKind::kEmbed:
      kernels::dequantize_row(op.table->type,
                              op.table->file + batch.ids[index] * op.table->row_bytes, 0,
                              op.table->k, out);
      return;
    case RowOpKind::kRmsNorm:
      kernels_.rms_norm(row_of(op.a, row, window.begin), op.weight, model_.rms_eps, op.out.width,
                        out);
      return;
    case RowOpKind::kHeadNorm:
      for (int64_t head = 0; head < op.heads; ++head) {
        float* x = out + head * model_.head_dim;
        kernels_.rms_norm(x, op.weight, model_.rms_eps, model_.head_dim, x);
      }
      return;
    case RowOpKind::kRope: {
      const int64_t half = model_.n_rot / 2;
      kernels_.rope(out, op.heads, model_.head_dim, model_.n_rot, batch.cos.data() + row * half,
                    batch.sin.data() + row * half,
                    model_.rope_half_split ? kernels::RopeStyle::kHalfSplit
                                           : kernels::RopeStyle::kInterleaved);
      return;
    }
    case RowOpKind::kStoreKv:
      store_kv(op, batch, row);
      return;
    case RowOpKind::kSwiGlu:
      kernels_.swiglu(row_of(op.a, row, window.begin), row_of(op.b, row, window.begin),
                      op.out.width, out);
      return;
    case RowOpKind::kAdd:
      kernels_.add(out, row_of(op.a, row, window.begin), op.out.width);
      return;
    case RowOpKind::kZero:
      std::fill_n(partials_of(op.out, row), op.out.width, 0.0);
      return;
    case RowOpKind::kTake:
      std::memcpy(out, row_of(op.a, batch.output_rows[index], 0),
                  static_cast<size_t>(op.out.width) * sizeof(float));
      return;
    case RowOpKind::kQuantize:
      kernels_.quantize_row(row_of(op.a, row, window.begin), op.a.width,
                            op.quantized.data + index * op.quantized.row_bytes);
      return;
  }
}

void ProgramRunner::store_kv(const RowOp& op, const Batch& batch, int64_t row) const {
  const size_t index = static_cast<size_t>(row);
  const size_t offset = static_cast<size_t>(batch.kv_row[index]) * kv_.row_bytes();
  const float* k = row_of(op.a, row, 0);
  const float* v = row_of(op.b, row, 0);
  for (int64_t head = 0; head < model_.kv_heads; ++head) {
    const int64_t at = head * model_.head_dim;
    kernels_.store_key(k + at, model_.head_dim, kv_.geometry().type,
                       kv_.keys(op.layer, batch.kv_block[index], head), batch.kv_row[index]);
    kernels_.store_value(v + at, model_.head_dim, kv_.geometry().type,
                         kv_.values(op.layer, batch.kv_block[index], head) + offset);
  }
}

// Pieces are (tile of rows) x (range of 16-row groups, counted through all matrices of the phase;
// for gate|up a group is the pair of groups, so that its product can be formed at once).
void ProgramRunner::run_matmul(const Phase& phase, const Window& window, int64_t rows) {
  int64_t groups = 0;
  int64_t group_work = 0;
  for (const MatMulOp& op : phase.matmuls) {
    if (!phase.swiglu || groups == 0) groups += groups_of(op.matrix->rows);
    group_work = std::max(group_work, op.matrix->k * kernels::kRowGroup * (phase.swiglu ? 2 : 1));
  }
  // Dequantising a row costs more than its products with a tile: exact mode does it once for all
  // rows.
  const bool dequantises =
      std::any_of(phase.matmuls.begin(), phase.matmuls.end(), [](const MatMulOp& op) {
        return op.matrix->packed == nullptr && is_block_type(op.matrix->type);
      });
  const int64_t tile = dequantises ? rows : kMatMulRowTile;
  const int64_t tiles = (rows + tile - 1) / tile;
  const int64_t total = group_work * groups * rows;
  int64_t cuts = 1;
  if (pool_.threads() > 1) {
    cuts = total / (kPieceWork * tiles);
    cuts = std::min(cuts, std::max<int64_t>(1, pool_.threads() * kPiecesPerThread / tiles));
    // As many pieces for every thread.
    cuts = (cuts + pool_.threads() - 1) / pool_.threads() * pool_.threads();
    cuts = std::clamp<int64_t>(cuts, 1, groups);
  }
  pool_.run(tiles * cuts, [&](int64_t piece, int thread) {
    // Neighbouring pieces share weights: all tiles of one range come one after the other.
    const int64_t cut = piece / tiles;
    const int64_t row0 = piece % tiles * tile;
    run_matmul_piece(phase, window.begin, row0, std::min(tile, rows - row0), groups * cut / cuts,
                     groups * (cut + 1) / cuts, thread);
  });
}

void ProgramRunner::run_matmul_piece(const Phase& phase, int64_t window_begin, int64_t row0,
                                     int64_t rows, int64_t group0, int64_t group1, int thread) {
  if (phase.swiglu) {
    const int64_t n0 = group0 * kernels::kRowGroup;
    const int64_t n1 = std::min(group1 * kernels::kRowGroup, phase.matmuls[0].matrix->rows);
    for (const MatMulOp& op : phase.matmuls) {
      matmul_range(op, window_begin, row0, rows, n0, n1, thread);
    }
    for (int64_t row = row0; row < row0 + rows; ++row) {
      kernels_.swiglu(row_of(phase.matmuls[0].out, row, window_begin) + n0,
                      row_of(phase.matmuls[1].out, row, window_begin) + n0, n1 - n0,
                      row_of(phase.activated, row, window_begin) + n0);
    }
    return;
  }
  int64_t first = 0;
  for (const MatMulOp& op : phase.matmuls) {
    const int64_t count = groups_of(op.matrix->rows);
    const int64_t begin = std::max(group0, first) - first;
    const int64_t end = std::min(group1, first + count) - first;
    if (begin < end) {
      matmul_range(op, window_begin, row0, rows, begin * kernels::kRowGroup,
                   std::min(end * kernels::kRowGroup, op.matrix->rows), thread);
    }
    first += count;
  }
}

void ProgramRunner::matmul_range(const MatMulOp& op, int64_t window_begin, int64_t row0,
                                 int64_t rows, int64_t n0, int64_t n1, int thread) {
  const Matrix& matrix = *op.matrix;
  const int64_t ld = op.out.width;
  float* sums = op.out.f64 ? nullptr : row_of(op.out, row0, window_begin);
  double* partials = op.out.f64 ? partials_of(op.out, row0) : nullptr;
  if (matrix.packed != nullptr) {
    kernels_.matmul_a8(matrix.type, matrix.packed, matrix.rows, matrix.k,
                       op.quantized.data + static_cast<size_t>(row0) * op.quantized.row_bytes, rows,
                       {sums, partials, ld, op.bias, op.chunk}, n0, n1);
    return;
  }
  const FloatRows in{row_of(op.in, row0, window_begin), op.in.width, rows};
  if (partials == nullptr) return multiply_floats(op, in, {n0, n1, sums + n0, ld}, thread);
  // Products of floats are float sums; a few columns at a time become doubles.
  std::vector<float>& strip = scratch_[static_cast<size_t>(thread)].strip;
  strip.resize(static_cast<size_t>(rows * kernels::kRowGroup));
  for (int64_t n = n0; n < n1; n += kernels::kRowGroup) {
    const int64_t end = std::min(n1, n + kernels::kRowGroup);
    multiply_floats(op, in, {n, end, strip.data(), kernels::kRowGroup}, thread);
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(strip.data() + row * kernels::kRowGroup, end - n, partials + row * ld + n);
    }
  }
}

void ProgramRunner::multiply_floats(const MatMulOp& op, const FloatRows& in, const FloatRange& out,
                                    int thread) {
  const Matrix& matrix = *op.matrix;
  const std::byte* rows = matrix.file + out.n0 * static_cast<int64_t>(matrix.row_bytes);
  const float* bias = op.bias != nullptr ? op.bias + out.n0 : nullptr;
  const int64_t count = out.n1 - out.n0;
  if (is_block_type(matrix.type)) {
    kernels::matmul_exact(kernels_, matrix.type, rows, matrix.row_bytes, matrix.k0, matrix.k, in.x,
                          in.ld, in.rows, bias, out.data, out.ld, 0, count,
                          scratch_[static_cast<size_t>(thread)].dequantized.data());
    return;
  }
  kernels_.matmul_float(matrix.type, rows + row_bytes(matrix.type, matrix.k0), matrix.row_bytes,
                        matrix.k, in.x, in.ld, in.rows, bias, out.data, out.ld, 0, count);
}

void ProgramRunner::run_attention(const Phase& phase, const Batch& batch) {
  int64_t work = 0;
  for (const BatchRun& run : batch.runs) work += run.n * (run.pos0 + run.n);
  work *= 2 * model_.heads * model_.head_dim;
  if (work < kSerialAttention) {
    for (const AttentionPiece& piece : batch.pieces) run_attention_piece(phase, batch, piece, 0);
    return;
  }
  pool_.run(static_cast<int64_t>(batch.pieces.size()), [&](int64_t index, int thread) {
    run_attention_piece(phase, batch, batch.pieces[static_cast<size_t>(index)], thread);
  });
}

void ProgramRunner::run_attention_piece(const Phase& phase, const Batch& batch,
                                        const AttentionPiece& piece, int thread) {
  const BatchRun& run = batch.runs[static_cast<size_t>(piece.run)];
  ThreadScratch& scratch = scratch_[static_cast<size_t>(thread)];
  const int64_t last = run.pos0 + piece.row0 + piece.rows - 1;
  for (int64_t block = 0; block <= last / kernels::kKvBlockTokens; ++block) {
    const size_t index = static_cast<size_t>(block);
    scratch.keys[index] = kv_.keys(phase.layer, run.blocks[index], piece.kv_head);
    scratch.values[index] = kv_.values(phase.layer, run.blocks[index], piece.kv_head);
  }
  kernels::AttentionArgs args{};
  const int64_t row = run.row0 + piece.row0;
  const int64_t column = piece.head0 * model_.head_dim;
  args.q = row_of(phase.q, row, 0) + column;
  args.q_row_stride = phase.q.width;
  args.row_count = piece.rows;
  args.pos0 = run.pos0 + piece.row0;
  args.heads = piece.heads;
  args.head_dim = model_.head_dim;
  args.scale = model_.attention_scale;
  args.type = kv_.geometry().type;
  args.k = scratch.keys.data();
  args.v = scratch.values.data();
  args.out = row_of(phase.mixed, row, 0) + column;
  args.out_row_stride = phase.mixed.width;
  args.scratch = scratch.attention.data();
  kernels_.attention(args);
}

}  // namespace coxswain::engine

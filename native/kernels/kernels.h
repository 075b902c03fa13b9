// The closed set of CPU kernels behind one dispatch table, filled once from the CPU's features.
//
// Free functions on pointers and sizes: no allocation, no threads, no I/O, no exceptions, no
// globals. INVARIANCE (ARCHITECTURE.md, "Why the same text comes out again"): for every function
// here all instruction sets return the same bits, and a row's result depends on nothing but its own
// inputs:
//   block weights (a8)  exact int32 sum over each 32-column block (integer sub-scales multiplied
//   in),
//                       then one f32 fma chain per output in ascending K; a minimum is a second fma
//                       directly after its block's first; sums over ranks: chains of a chunk, added
//                       in f64 (A8Out)
//   float reductions    16 virtual lanes over the reduced axis (lane = index % 16), then the fixed
//   tree
//                       lane i += lane i+8, i+4, i+2, i+1
//   attention           one partial (max, sum, output) per KV block of 256 absolute positions,
//   merged
//                       in ascending order
// scalar/ is the reference; avx2/, avx512/, neon/ must equal it bit for bit.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/tensor_type.h"

namespace coxswain::kernels {

inline constexpr int64_t kActivationBlock = 32;  // columns that share one int8 activation scale
inline constexpr int64_t kRowGroup = 16;         // weight rows interleaved in one packed group
inline constexpr int64_t kKvBlockTokens = 256;   // positions in one KV block
inline constexpr int64_t kKeyGroup = 16;         // tokens whose keys share a vector

enum class Isa { kScalar, kAvx2, kAvx512, kNeon };
const char* isa_name(Isa isa);
// The best set this CPU has; COX_ISA=scalar|avx2|avx512|neon lowers it (tests), an impossible value
// is an EngineError("ISA_UNAVAILABLE") naming it.
Isa choose_isa();
bool isa_available(Isa isa);

enum class KvType : uint32_t { kF32 = 0, kF16 = 1 };
inline size_t kv_element_bytes(KvType type) { return type == KvType::kF32 ? 4 : 2; }
enum class RopeStyle { kInterleaved, kHalfSplit };  // pairs (2i, 2i+1) | (i, i + n_rot/2)

// Attention of `row_count` query rows of ONE slot over one KV head's blocks.
// Row r stands at absolute position pos0 + r and sees positions 0..pos0+r.
struct AttentionArgs {
  const float* q;        // (row_count, heads, head_dim): q + r*q_row_stride + h*head_dim
  int64_t q_row_stride;  // floats between rows
  int64_t row_count;
  int64_t pos0;
  int64_t heads;  // query heads that share this KV head
  int64_t head_dim;
  float scale;
  KvType type;
  const void* const* k;  // per KV block: 16 groups of 16 tokens, see attention_shape.h
  const void* const* v;  // per KV block: (256, head_dim) of `type`
  float* out;            // (row_count, heads, head_dim), stride out_row_stride
  int64_t out_row_stride;
  float* scratch;  // attention_scratch_floats(heads, head_dim) floats, one per thread
};

// Where a8 products go. chunk == 0: one f32 chain an output. Else a chain for each `chunk` columns
// (a multiple of 32; the last may be shorter), added in f64 in ascending order: a matrix cut
// between chunks then gives parts whose f64 sum is that of the whole but for the last of 53 bits.
struct A8Out {
  float* sums;        // (rows, ld): the sum, rounded to f32 ...
  double* partials;   // ... or, when `sums` is null, the f64 sum itself (chunk > 0, no bias)
  int64_t ld;         // elements between rows
  const float* bias;  // one an output, added last; or null
  int64_t chunk;
};

struct Kernels {
  Isa isa;

  // --- a8: int8 activations, block-quantised weights -------------------------------------------
  // dst: quantized_row_bytes(k) bytes. Scale absmax/127, round half to even. k % 32 == 0.
  void (*quantize_row)(const float* x, int64_t k, void* dst);
  // out[r*ld + n] = sum_k a[r][k] w[n][k] (+ bias[n]) for n in [n0, n1).
  // packed: pack_rows() of n_total rows; n0 % 16 == 0; n1 % 16 == 0 or n1 == n_total.
  // acts: row_count rows, each quantized_row_bytes(k) apart. out is not touched outside [n0, n1).
  void (*matmul_a8)(TensorType type, const void* packed, int64_t n_total, int64_t k,
                    const void* acts, int64_t row_count, const A8Out& out, int64_t n0, int64_t n1);

  // --- float activations ------------------------------------------------------------------------
  // Weights F32 | F16 | BF16 in file layout, row n at w + n*w_row_bytes, columns 0..k-1.
  void (*matmul_float)(TensorType type, const void* w, size_t w_row_bytes, int64_t k,
                       const float* x, int64_t ldx, int64_t row_count, const float* bias,
                       float* out, int64_t ldo, int64_t n0, int64_t n1);

  // --- between the matrices ---------------------------------------------------------------------
  void (*rms_norm)(const float* x, const float* w, float eps, int64_t n, float* y);  // y may be x
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* y);  // silu(gate) * up
  void (*add)(float* x, const float* y, int64_t n);                         // x += y
  // x: (heads, head_dim); cos, sin: n_rot/2 values of this position.
  void (*rope)(float* x, int64_t heads, int64_t head_dim, int64_t n_rot, const float* cos,
               const float* sin, RopeStyle style);
  // x: head_dim values of one token. Keys lie 16 tokens to a vector: each goes to its group's lane.
  void (*store_value)(const float* x, int64_t head_dim, KvType type, void* dst);
  void (*store_key)(const float* x, int64_t head_dim, KvType type, void* block, int64_t token);
  void (*attention)(const AttentionArgs& args);

  // --- logits
  // ------------------------------------------------------------------------------------- Partial
  // (max, sum of exp(x - max)) in 16 lanes; parts combine in rank order by the sampler.
  void (*max_sum_exp)(const float* x, int64_t n, float* max, float* sum);
};

const Kernels& kernels_for(Isa isa);

// --- layouts (same for every instruction set)
// -----------------------------------------------------
size_t quantized_row_bytes(int64_t k);
// Bytes of a packed matrix: rows rounded up to 16, k % 32 == 0. Packed data is 64-byte aligned.
size_t packed_bytes(TensorType type, int64_t rows, int64_t k);
// Packs rows [row0, row0 + row_count) of the destination from file rows: `src` is the file row that
// becomes destination row row0 (rows src_row_bytes apart), columns [k0, k0 + k) of it, k0 % 32 ==
// 0. A 256-element super-block may be cut: every packed 32-block carries its own scales. row0 % 16
// == 0.
void pack_rows(TensorType type, const void* src, size_t src_row_bytes, int64_t k0, int64_t k,
               int64_t row0, int64_t row_count, void* dst);
// File row -> floats, columns [k0, k0 + k) (k0 % 32 == 0 for block types). Exact against ggml.
void dequantize_row(TensorType type, const void* src, int64_t k0, int64_t k, float* dst);

int64_t attention_scratch_floats(int64_t heads, int64_t head_dim);
// exact mode: block weights dequantised row by row, f32 activations, the float reduction order.
// scratch: k floats per thread. Rows of w in file layout, columns from k0.
void matmul_exact(const Kernels& kernels, TensorType type, const void* w, size_t w_row_bytes,
                  int64_t k0, int64_t k, const float* x, int64_t ldx, int64_t row_count,
                  const float* bias, float* out, int64_t ldo, int64_t n0, int64_t n1,
                  float* scratch);

// --- scalar functions that must agree on every CPU
// ------------------------------------------------
float exact_exp(float x);  // own exp: same operations as the vector versions
double exact_pow(double base, double exponent);
void exact_sincos(double angle, double* sine, double* cosine);
double exact_log(double x);

}  // namespace coxswain::kernels

#pragma once

// The kernels of one instruction set, as pointers, and the plain structs they take. Every kernel
// computes one piece of an operation on the calling thread. Plain data only: this header is read by
// code compiled for every target.

#include <cstddef>
#include <cstdint>

#include "../common/quant/weight_type.h"
#include "panel_layout.h"

namespace forge::cpu {

// ---- products -------------------------------------------------------------------------------

// The most tokens that one call multiplies.
constexpr uint32_t kMatmulTokens = 256;
// Up to as many tokens weights are used as they lie in their panels; beyond, they are unpacked
// first.
constexpr uint32_t kFewTokens = 8;
// Bytes of scratch a thread needs: unpacked panels, then the sums of 64 rows. The last tile of
// tokens may pass their end.
constexpr size_t kMatmulTileBytes = 192 << 10;
constexpr size_t kMatmulScratch = kMatmulTileBytes + (kMatmulTokens + 8) * 64 * sizeof(float);

// One row of the activations, where its products go, and what is added to them (may be null).
struct MatmulToken {
  const float* x;
  const ActivationBlock* blocks;  // x as signed bytes; null where the weight is of floats only
  float* out;
  const float* residual;
};

// out[token][first_row + r] = residual + alpha activation(x . weight row r + bias)
struct MatmulBlock {
  WeightType type;
  const uint8_t* panels;  // or null: then the rows as they lie in the file
  uint64_t panel_bytes;
  const uint8_t* rows;
  uint64_t row_bytes;
  void (*dequantize)(const uint8_t* blocks, float* out, uint64_t n);
  uint64_t cols;
  uint32_t n_rows;
  uint64_t first_row;  // column of the first product in out, residual and bias
  const float* bias;   // may be null
  float alpha;
  uint32_t activation;
  const MatmulToken* tokens;
  uint32_t n_tokens;
};

// ---- attention ------------------------------------------------------------------------------

// Query rows that one call handles: tokens of one sequence by heads that share a KV head.
constexpr uint32_t kAttentionRows = 96;
// Positions whose softmax is taken at once. Splits start at multiples of it, so that a token's
// result does not depend on how the work is divided.
constexpr uint32_t kAttentionSplit = 256;
// Positions that are read from a page at once.
constexpr uint32_t kAttentionRun = 64;
// Elements of a head that share a scale in a Q8_0 cache; the last block of a head may be shorter.
constexpr uint32_t kKvBlock = 32;

// Floats from one row of scores to the next: the last vector of a row may pass its end.
constexpr uint32_t kScoreStride = kAttentionSplit + 16;

// A head's dimensions, filled up to whole vectors: floats from one row of results to the next.
static inline constexpr uint32_t padded_dim(uint32_t head_dim) { return (head_dim + 15) / 16 * 16; }

// Floats of scratch a thread needs: scores, scaled queries, and a run of keys or values.
static inline constexpr size_t attention_scratch(uint32_t k_head_dim, uint32_t v_head_dim) {
  const uint32_t widest = k_head_dim > v_head_dim ? k_head_dim : v_head_dim;
  return size_t{kAttentionRows} * (kScoreStride + k_head_dim) +
         size_t{kAttentionRun + 16} * padded_dim(widest);
}

// The positions a token sees, both ends included.
struct Visible {
  int32_t first;
  int32_t last;
};

// Where the keys and values of one KV head lie in page 0, and how far apart pages are. Scales, of
// Q8_0 alone, are float16. Where values are in the keys, both lie as values do, in rows of
// k_head_dim.
struct KvHead {
  const uint8_t* k;         // [k_head_dim][page_tokens]
  const uint8_t* k_scales;  // [blocks of k_head_dim][page_tokens]
  const uint8_t* v;         // [page_tokens][v_head_dim]
  const uint8_t* v_scales;  // [page_tokens][blocks of v_head_dim]
  uint64_t page_bytes;
};

// Row i belongs to token i / n_heads and head i % n_heads.
struct AttentionRows {
  const float* q;     // of the first token and head
  uint64_t q_stride;  // floats from token to token
  uint32_t n_tokens;
  uint32_t n_heads;
  uint32_t k_head_dim;
  uint32_t v_head_dim;
  bool values_in_keys;
  const Visible* visible;  // of each token
  const int32_t* pages;    // the sequence's page table
  uint32_t page_tokens;
  WeightType type;  // of the cache: F32, F16 or Q8_0
  KvHead kv;
  float scale;
  float softcap;  // 0: none
};

// A softmax under way, in powers of two: for each row its largest score times log2(e), the sum of
// 2^(score - largest), and the sum of those weights times the values.
struct AttentionPartial {
  float* largest;  // [rows]; -infinity where nothing was seen
  float* total;    // [rows]
  float* out;      // [rows][padded_dim(v_head_dim)]
};

// ---- recurrent state ------------------------------------------------------------------------

// Columns of a state that lie side by side: its panels are [rows][16], one after another.
constexpr uint32_t kStateColumns = 16;

// Some tokens of one sequence and one value head, in the order of their positions.
struct DeltaBlock {
  float* state;           // of the head: panels of [k_dim][16]
  uint64_t panel_stride;  // floats from panel to panel
  const float* q;         // [n_tokens][k_dim], normalised
  const float* k;         // the same
  const float* v;         // of the first token
  uint64_t v_stride;      // floats from token to token
  const float* beta;      // [n_tokens]
  const float* decay;     // [n_tokens]
  float* out;
  uint64_t out_stride;
  uint32_t n_tokens;
  uint32_t k_dim;
  uint32_t v_dim;
};

// ---- sampling -------------------------------------------------------------------------------

// Logits whose exponentials are summed in float before their sums are added in double.
constexpr uint64_t kSumBlock = 256;

struct LogitScan {
  float largest;
  bool has_nan;  // or +infinity, which no softmax can be taken of either
};

// ---- all of them ----------------------------------------------------------------------------

struct KernelTable {
  const char* name;

  void (*matmul)(const MatmulBlock& block, uint8_t* scratch);
  // Activations as signed bytes; n is a multiple of kBlockCols.
  void (*quantize)(const float* x, uint64_t n, ActivationBlock* out);
  // Writes a panel of the first n_rows <= 16 rows; what it leaves out must be zero.
  void (*pack)(WeightType type, const uint8_t* rows, uint64_t row_bytes, uint32_t n_rows,
               uint64_t cols, uint8_t* panel);

  // out = residual + x / sqrt(mean(x^2) + eps) (weight + offset); residual may be null, and out x.
  void (*rms_norm)(const float* x, const float* weight, uint64_t n, float eps, float offset,
                   const float* residual, float* out);
  // out = (x - mean) / sqrt(variance + eps) weight + bias; bias may be null.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, uint64_t n, float eps,
                     float* out);
  // out = activation(gate) up
  void (*glu)(const float* gate, const float* up, uint64_t n, uint32_t unit, float* out);
  // out = residual + sigmoid(gate) x; residual may be null.
  void (*sigmoid_gate)(const float* x, const float* gate, uint64_t n, const float* residual,
                       float* out);
  // out = x / sqrt(mean(x^2) + eps) weight activation(gate)
  void (*gated_rms_norm)(const float* x, const float* gate, const float* weight, uint64_t n,
                         float eps, uint32_t activation, float* out);
  // out = cap tanh(x / cap)
  void (*softcap)(const float* x, uint64_t n, float cap, float* out);
  // out = x within -limit and limit; NaN stays.
  void (*clamp)(const float* x, uint64_t n, float limit, float* out);
  // out = scale x; out may be x.
  void (*scale)(const float* x, uint64_t n, float scale, float* out);
  // accumulator += weight x
  void (*add_scaled)(float* accumulator, const float* x, float weight, uint64_t n);

  // Rotates the first 2 n elements of every head in place; table holds n cosines, then n sines.
  void (*rotate)(float* heads, uint32_t n_heads, uint32_t head_dim, const float* table, uint64_t n,
                 uint32_t layout);
  // Writes the f16 nearest to each x.
  void (*to_f16)(const float* x, uint64_t n, uint8_t* out);
  // Quantises blocks of kKvBlock, the last one perhaps shorter: a block's scale is the float16
  // nearest to its largest magnitude / 127, NaN where the block holds NaN or infinity.
  void (*to_q8)(const float* x, uint64_t n, int8_t* out, uint8_t* scales);

  // The softmax over the split that begins at `begin`, a multiple of kAttentionSplit.
  void (*attention_split)(const AttentionRows& rows, int32_t begin, const AttentionPartial& out,
                          float* scratch);
  // into = the softmax over what both have seen.
  void (*attention_merge)(uint32_t n_rows, uint32_t v_head_dim, const AttentionPartial& into,
                          const AttentionPartial& more);
  // out = the weighted mean of a row's values; sink, a score without a value, may be null.
  void (*attention_finish)(const AttentionPartial& partial, uint32_t row, uint32_t v_head_dim,
                           const float* sink, float* out);

  // out[n] = activation(bias + sum over the rows of taps[row][n] rows[row]); bias may be null.
  void (*conv1d_row)(const float* const* rows, const float* taps, uint32_t width,
                     const float* bias, uint64_t n, uint32_t activation, float* out);
  // out = factor x / sqrt(sum(x^2) + eps)
  void (*l2_normalize)(const float* x, uint64_t n, float eps, float factor, float* out);
  // See forge_gated_delta_rule in forge.h.
  void (*delta_rule)(const DeltaBlock& block);

  LogitScan (*scan)(const float* x, uint64_t n);
  // The sum of exp((x - largest) scale). The terms go to terms[n], and the sums of every kSumBlock
  // of them to sums, unless these are null.
  double (*sum_exp)(const float* x, uint64_t n, float largest, float scale, float* terms,
                    double* sums);
  // The first index from `begin` on with x > threshold, or n.
  uint64_t (*find_above)(const float* x, uint64_t begin, uint64_t n, float threshold);
};

#if defined(__x86_64__)
const KernelTable& kernels_portable();
const KernelTable& kernels_avx2();
const KernelTable& kernels_avx2_vnni();
const KernelTable& kernels_avx512();
#elif defined(__aarch64__)
const KernelTable& kernels_portable();
const KernelTable& kernels_neon_dot();
#else
const KernelTable& kernels_portable();
#endif

}  // namespace forge::cpu

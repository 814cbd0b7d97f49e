#pragma once

// The kernels of one instruction set as function pointers (kernel_list.h), and their structs. Every
// kernel computes one piece of an operation on the calling thread. Code of every target includes
// this header, so it holds plain data only.

#include <cstddef>
#include <cstdint>

#include "../common/quant/weight_type.h"
#include "panel_layout.h"

namespace forge::cpu {

// ---- products -------------------------------------------------------------------------------

// Maximum number of tokens that one call multiplies.
constexpr uint32_t kMatmulTokens = 256;
// Up to this many tokens, kernels multiply packed panels; above it, they unpack the panels first.
constexpr uint32_t kFewTokens = 8;
// Bytes of scratch per thread: unpacked panels, then the sums of 64 rows. The last tile of tokens
// may extend past the last token.
constexpr size_t kMatmulTileBytes = 192 << 10;
constexpr size_t kMatmulScratch = kMatmulTileBytes + (kMatmulTokens + 8) * 64 * sizeof(float);

// One row of activations, the destination of its products, and the row added to them (may be null).
struct MatmulToken {
  const float* x;
  const ActivationBlock* blocks;  // x as signed bytes; null for weights of floats only
  const uint8_t* halves;          // x rounded to BF16, in chunks; may be null
  uint64_t halves_stride;         // bytes from one chunk to the next
  float* out;
  const float* residual;
};

// Columns and bytes of a chunk of activations that are rounded to BF16: [chunk][row][column], so
// that products read the rows of a chunk one after another.
constexpr uint64_t kRoundedCols = 256;
constexpr uint64_t kRoundedBytes = 2 * kRoundedCols;
// Rows after the last one that kernels may read, whatever they hold.
constexpr uint64_t kRoundedSlack = 16;

// out[token][first_row + r] = residual + alpha activation(x . weight row r + bias)
struct MatmulBlock {
  WeightType type;
  const uint8_t* panels;  // null: multiply `rows`, in the layout of the file
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

// Maximum number of query rows per call: tokens of one sequence times heads that share a KV head.
constexpr uint32_t kAttentionRows = 96;
// Positions per split. Splits start at multiples of it, so that a token's result does not depend on
// how the work is divided.
constexpr uint32_t kAttentionSplit = 256;
// Maximum number of positions read from a page at once.
constexpr uint32_t kAttentionRun = 64;
// Elements of a head that share a scale in a Q8_0 or Q4_0 cache; the last block of a head may be
// shorter.
constexpr uint32_t kKvBlock = 32;

// Bytes of the values of a position in a Q4_0 cache: byte j of a block has dimensions j and j + 16.
static inline constexpr uint32_t q4_row_bytes(uint32_t v_head_dim) {
  return (v_head_dim + kKvBlock - 1) / kKvBlock * (kKvBlock / 2);
}

// Floats from one row of scores to the next; the last vector of a row may extend past its end.
constexpr uint32_t kScoreStride = kAttentionSplit + 16;

// The dimensions of a head, rounded up to whole vectors: floats from one row of results to the
// next.
static inline constexpr uint32_t padded_dim(uint32_t head_dim) { return (head_dim + 15) / 16 * 16; }

// Floats of scratch per thread: scores, scaled queries, and a run of keys or values.
static inline constexpr size_t attention_scratch(uint32_t k_head_dim, uint32_t v_head_dim) {
  const uint32_t widest = k_head_dim > v_head_dim ? k_head_dim : v_head_dim;
  return size_t{kAttentionRows} * (kScoreStride + k_head_dim) +
         size_t{kAttentionRun + 16} * padded_dim(widest);
}

// The positions that a token attends to, both ends included; none if last < first.
struct Visible {
  int32_t first;
  int32_t last;
};

// Addresses of the keys and values of one KV head in page 0, and the distance between pages. Only
// Q8_0 and Q4_0 have scales, in float16. In Q4_0, two dimensions share a byte: d and d + 1 of a
// key, and those of q4_row_bytes. If values are in the keys, both are stored like values, in rows
// of k_head_dim.
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
  WeightType type;  // of the cache: F32, F16, BF16, Q8_0 or Q4_0
  KvHead kv;
  float scale;
  float softcap;  // 0: none
  // Null, or the mask of the first token and head, as bits of visible positions or floats to add to
  // scores: rows of mask_stride words, for each token one for each of mask_heads heads.
  const uint32_t* mask;
  uint64_t mask_stride;
  uint32_t mask_heads;  // 1: one for all heads
  bool mask_is_bits;
};

// A partial softmax in powers of two: for each row the largest score times log2(e), the sum of
// 2^(score - largest), and the sum of those weights times the values.
struct AttentionPartial {
  float* largest;  // [rows]; -infinity before any position
  float* total;    // [rows]
  float* out;      // [rows][padded_dim(v_head_dim)]
};

// ---- recurrent state ------------------------------------------------------------------------

// Adjacent columns of a state: its panels are [rows][16], one after another.
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

// Most tokens of a ScanBlock.
constexpr uint32_t kScanTokens = 64;

// Some tokens of one sequence and one head, in the order of their positions.
struct ScanBlock {
  float* state;           // of the head: panels of [d_state][16]
  uint64_t panel_stride;  // floats from panel to panel
  const float* x;         // of the first token, as are b, c, gate and out
  const float* b;
  const float* c;
  uint64_t stride;  // floats from token to token of x, b and c
  const float* dt;      // [n_tokens]
  const float* decay;   // [n_tokens]
  float skip;
  const float* gate;  // may be null
  float* out;
  uint64_t out_stride;  // of gate too
  uint32_t n_tokens;
  uint32_t d_state;
  uint32_t head_dim;
};

// ---- sampling -------------------------------------------------------------------------------

// Number of exponentials summed in float; the sums of such blocks are added in double.
constexpr uint64_t kSumBlock = 256;

struct LogitScan {
  float largest;
  bool has_nan;  // or +infinity: either one makes a softmax undefined
};

// ---- the table ------------------------------------------------------------------------------

struct KernelTable {
  const char* name;
#define KERNEL(Result, kernel, parameters) Result(*kernel) parameters;
#include "kernel_list.h"
#undef KERNEL
  // True if weights of a type are multiplied with activations rounded to BF16; null if none are.
  bool (*rounds)(WeightType type) = nullptr;
  // Rounds up to kRoundedCols columns of a row. NaN and infinity stay.
  void (*round)(const float* x, uint64_t n, uint8_t* out) = nullptr;
};

const KernelTable& kernels_portable();
#if defined(__x86_64__)
const KernelTable& kernels_avx2();
const KernelTable& kernels_avx2_vnni();
const KernelTable& kernels_avx512_bw();
const KernelTable& kernels_avx512();
// Products of BF16 weights with activations rounded to BF16; the other kernels are those of avx512.
const KernelTable& kernels_avx512_bf16();
// The same for F16 weights, which are rounded to BF16 while they are packed.
const KernelTable& kernels_avx512_bf16_f16();
// Products of BF16 and of quantised weights by AMX; the other kernels are those of avx512.
const KernelTable& kernels_avx512_amx();
// The same with F16 weights rounded to BF16, and with BF16 weights multiplied in float32.
const KernelTable& kernels_avx512_amx_f16();
const KernelTable& kernels_avx512_amx_f32();
#elif defined(__aarch64__)
const KernelTable& kernels_neon_dot();
const KernelTable& kernels_neon_i8mm();
// As those of AVX512-BF16; the other kernels are those of neon_i8mm.
const KernelTable& kernels_neon_bf16();
const KernelTable& kernels_neon_bf16_f16();
#endif

}  // namespace forge::cpu

// The kernels of the target that a file is compiled for.
#ifdef FORGE_TARGET
namespace forge::cpu::FORGE_TARGET {
#define KERNEL(Result, kernel, parameters) Result kernel parameters;
#include "kernel_list.h"
#undef KERNEL
}  // namespace forge::cpu::FORGE_TARGET
#endif

// Arguments of the Metal kernels: for each kernel its scalars as one struct, its buffers in the
// order of their indices, its launch geometry, and its instances. Included by the kernels (MSL) and
// by the host (C++). Experts, sampling and recurrent state have their own files with the same
// conventions.
//
// Conventions
//   - Buffers have the indices 0, 1, 2 ... in the order listed; the struct of scalars comes last
//     (setBytes). Values that change from step to step (row counts, ids, positions, page tables)
//     are read from buffers.
//   - A buffer in brackets [..] is read only if a field of the struct says so; otherwise any buffer
//     is bound in its place.
//   - Matrices are row-major F32 unless said otherwise. "rows" of an activation are tokens or
//     outputs; *n_rows of them exist. A grid may have more; the excess does nothing.
//   - `grid` counts threadgroups; ceil(a, b) is a / b rounded up; `threads` is per threadgroup;
//     `memory` is threadgroup memory at index 0 in bytes, to be rounded up to 16. No kernel uses
//     more than 32 KB of it.
//   - F is a weight format, tokens the number of tokens computed together, T the element type of a
//     KV cache (float, f16, bf16, q8, q4), D a head size. A line such as
//     INSTANTIATE(matvec_FormatQ4_0_1, matvec<FormatQ4_0, 1>) after the file's text instantiates a
//     template under the first of these names. Kernels that are not templates need no such line.
//   - Formats: FormatF32, FormatF16, FormatBF16, FormatQ8_0, FormatFP8, FormatQ4_0, FormatQ4_K,
//     FormatQ6_K (the fast ones), and Blocks<n> for types 3, 6, 7, 10, 11, 13, 16 to 23, 29, 34,
//     35, 39 and 257 (csrc/abi/weights.h).
//   - Weights have the layout of their file: rows row_stride bytes apart, of whole blocks. The
//     first byte of a weight is aligned to 8 bytes for F32, F16, BF16 and Q4_K, to 4 for FP8, to 2
//     for Q8_0, Q4_0 and Q6_K. Other buffers of floats are aligned to 16 bytes.
//   - codebooks: the tables of the IQ types, one after another as 64-bit words: iq1_grid,
//     iq2_xxs_grid, iq2_xs_grid, iq2_s_grid, iq3_xxs_grid, iq3_s_grid (csrc/common/quant). Read
//     only by Blocks<16> to Blocks<22> and Blocks<29>; otherwise any buffer.
//   - Kernels are compiled without fast math.
//   - Constants that only affect speed are derived from published facts about Apple's GPUs, not
//     measured.
#pragma once

#include "kv_arguments.h"
#include "moe_arguments.h"
#include "row_arguments.h"
#include "sampling_arguments.h"
#include "state_arguments.h"

namespace metal_args {

using namespace kernel_args;

// ---- products -----------------------------------------------------------------------------------

// SIMD groups of a threadgroup of matvec, and the rows that one of them computes together: for the
// fast formats, and for Blocks<n>.
KERNEL_CONSTANT kMatvecSimdgroups = 8;
KERNEL_CONSTANT kMatvecRows = 4;
KERNEL_CONSTANT kMatvecBlocksRows = 1;
// The most tokens that matvec computes together; more tokens are computed group by group. Without
// matrix units, GPUs up to Apple9 take as long for four groups as gemm takes for its 32 tokens.
KERNEL_CONSTANT kMostMatvecTokens = 8;
// SIMD groups share rows (`split`) while each keeps this many columns, and while there are fewer
// threadgroups than this:
//   split = 1; while (2 split <= min(8, cols / kSplitCols) && grid.x(split) < kFewThreadgroups)
//   split *= 2
// Metal does not tell the number of cores. 64 threadgroups have 512 KB or more in flight, which is
// above the product of bandwidth and latency of every chip: 420 KB for the 80 cores of an M3 Ultra.
KERNEL_CONSTANT kSplitCols = 512;
KERNEL_CONSTANT kFewThreadgroups = 64;
// An RMSNorm is fused into the product after it if the product's threadgroups together read the
// norm's weight, mostly from the cache, in at most this many bytes: several times less time than a
// launch and the norm take.
KERNEL_CONSTANT kMostNormBytes = 16 << 20;
// Rows of weights and tokens per threadgroup of gemm.
KERNEL_CONSTANT kGemmRows = 64;
KERNEL_CONSTANT kGemmTokens = 64;
// Columns of a row of round_rows, which is padded with zeros to a multiple of kRoundedCols.
KERNEL_CONSTANT kRoundedCols = 64;
inline uint32_t rounded_cols(uint32_t cols) {
  return (cols + kRoundedCols - 1) / kRoundedCols * kRoundedCols;
}

// out = residual + alpha * activation(product + bias). Bias and residual begin at the product's
// first row of weights; the residual has the row stride of the output. With `opened`, the first
// `opened` rows of the weight are a gate, the next `opened` rows are gated by it, and the rest of
// the epilogue is empty: out[opened columns] = unit(gate, gated). Supported by gemm, and by matvec
// and rms_norm_matvec with the fast formats.
struct Epilogue {
  float alpha;
  uint32_t activation;
  uint32_t has_bias;
  uint32_t has_residual;
  uint32_t opened;  // 0: no gate
  uint32_t unit;    // of forge.h
};

// matvec<F, tokens>: out, x, weight, [weight_2], [weight_3], n_rows, [row_list], [bias],
// [residual],
//   codebooks
//   the weight's rows from second_row on are in weight_2, those from third_row on in weight_3
//   x [.., cols]; out [.., out_stride], of which `rows` columns are written; both use the rows in
//   uint32 row_list [*n_rows] if given, else the first *n_rows
// grid (ceil(rows, kMatvecSimdgroups / split * kMatvecRows (Blocks: kMatvecBlocksRows)),
//       ceil(max tokens, tokens)); threads 256
// fast formats: tokens 1, 2, 4, 8; Blocks: 1, 4
//
// gemm<F>: out, x, [factors], weight, [weight_2], [weight_3], n_rows, [row_list], [bias],
// [residual],
//   codebooks
//   the same for many tokens; `split` is not read
//   x and factors as round_rows stores them; for FormatF32 and FormatBF16 x is F32, without factors
// grid (ceil(max tokens, kGemmTokens), ceil(rows, kGemmRows)); threads 128; every format
struct MatvecArgs {
  uint64_t row_stride;
  uint32_t rows;
  uint32_t second_row;  // `rows` without a second piece, like third_row
  uint32_t third_row;
  uint32_t cols;
  uint32_t out_stride;
  uint32_t split;
  uint32_t has_row_list;
  Epilogue epilogue;
};

// round_rows: half out, factors, x, n_rows, [row_list]
//   x [.., pieces, cols]; divides each piece by its factor, rounds it to F16 and pads it: out
//   [.., pieces, rounded_cols(cols)], factors [.., pieces]; the rows in row_list if given, else the
//   first *n_rows, at the places that they have in x
// grid (max rows, pieces); threads 256
struct RoundRowsArgs {
  uint32_t cols;
  uint32_t pieces;
  uint32_t has_row_list;
};

// rms_norm_matvec<F, tokens>: out, x, norm_weight, weight, [weight_2], [weight_3], n_rows,
//   [row_list], [bias], [residual]
//   the product with x / rms(x, eps) * (norm_weight + offset)
// grid and threads of matvec; fast formats; tokens 1, 2, 4, 8
struct RmsNormMatvecArgs {
  MatvecArgs product;
  float eps;
  float offset;
};

// rms_norm_qkv<F, tokens>: q, x, norm_weight, weight, [weight_2], [weight_3], n_rows, [row_list],
//   [bias], uint8 pages, int32 positions, int32 sequences, int32 page_tables, RowCopy copies,
//   n_copies, [rope]
//   rms_norm_matvec and rope_append with the same bits, for heads of even widths without norms:
//   first_row is the product's first row in q, k and v, and the first of a head or of the values
// grid and threads of matvec; fast formats; tokens 1, 2, 4, 8
struct RmsNormQkvArgs {
  RmsNormMatvecArgs normed;  // alpha 1, no activation, no residual
  RopeAppendArgs append;     // no norms, first_rotated 0
  uint32_t first_row;
  uint32_t element;  // of the cache: 0 float, 1 f16, 2 bf16
};

// grouped_matvec<F, tokens>: out, x, weight, tiles, n_tiles, pairs, [bias], codebooks
//   x [tokens, cols] when x_shared, else [tokens * top_k, cols]; out [tokens * top_k, expert_rows];
//   bias [n_experts, expert_rows]; tiles of moe_group or head_groups with tile_tokens = tokens
// grid (as matvec's x for expert_rows, max tiles); threads 256; instances as matvec's
//
// grouped_gemm<F>: out, x, [factors], weight, tiles, n_tiles, pairs, [bias], codebooks
//   the same with tiles of moe_group with tile_tokens = kGemmTokens; `split` is not read
//   x and factors as for gemm
// grid (ceil(expert_rows, kGemmRows), max tiles); threads 128; every format
struct GroupedMatvecArgs {
  uint64_t row_stride;
  uint32_t expert_rows;
  uint32_t cols;
  uint32_t top_k;
  uint32_t x_shared;
  uint32_t has_bias;
  uint32_t split;
};

// ---- positions, KV cache, attention -------------------------------------------------------------

// The position of the two numbers of an 8 x 8 SIMD group matrix that a lane holds: row `row`,
// columns `col` and col + 1. Metal does not specify it; all Apple GPUs with such matrices are known
// to use these positions, and MLX relies on them, too. Decode attention, prefill_attention
// and latent_attention require that the matrix_places kernel has confirmed the positions; otherwise
// naive_attention is used.
struct MatrixPlace {
  uint32_t row;
  uint32_t col;
};
inline MatrixPlace matrix_place(uint32_t lane) {
  return {(lane >> 4 & 1) * 4 + (lane >> 1 & 3), (lane >> 3 & 1) * 4 + (lane & 1) * 2};
}

// matrix_places: held [32 lanes, 3 matrices, 2], matrix [8, 8]
// grid 1; threads 32
struct MatrixPlacesArgs {
  uint32_t row_stride;  // numbers between rows of the matrix
};

// Numbers, in fours, that a threadgroup of read_memory adds, and its threads.
KERNEL_CONSTANT kReadFours = 16384;
KERNEL_CONSTANT kReadThreads = 256;

// read_memory: sums [threadgroups, kReadThreads / 32], memory [threadgroups, kReadFours, 4]
// grid (threadgroups); threads kReadThreads
struct ReadMemoryArgs {
  float factor;  // of the sums
};

// Threads of a threadgroup of multiply_matrices, the products of 8 x 8 matrices that a SIMD group
// computes in a round, and its rounds.
KERNEL_CONSTANT kMultiplyThreads = 128;
KERNEL_CONSTANT kMultiplyMatrices = 8;
KERNEL_CONSTANT kMultiplyRounds = 128;
KERNEL_CONSTANT kMultiplySums = kMultiplyThreads / 32 * kMultiplyMatrices * 64;

// multiply_matrices: sums [kMultiplySums]
//   all threadgroups store the same sums
// grid (threadgroups); threads kMultiplyThreads
struct MultiplyMatricesArgs {
  float number;  // all numbers of the factors
};

// The most queries per tile of prefill attention; a threadgroup computes half of them.
KERNEL_CONSTANT kPrefillQueries = 64;
// Rows (query heads of a KV head times queries) per threadgroup of decode attention, and of latent
// attention.
KERNEL_CONSTANT kDecodeRows = 8;
KERNEL_CONSTANT kLatentRows = 16;
// The widest heads of narrow_decode_attention.
KERNEL_CONSTANT kNarrowHead = 64;
// Threads per threadgroup of decode attention for heads of `dim` numbers.
inline uint32_t decode_threads(uint32_t dim) {
  return dim <= kNarrowHead ? 512 : dim <= 128 ? 256 : 128;
}

// naive_attention<T>: out, q, uint8 pages, int32 positions, int32 sequences, int32 n_keys,
//   int32 page_tables, n_tokens, [sinks], [uint32 mask], mask_stride
//   n_keys [tokens]: positions of each token's sequence
//   mask [tokens, mask_heads, *mask_stride]: floats to add to the scores, or bits, of which bit
//   i % 32 of word i / 32 makes position i visible
// grid (n_heads, max tokens); threads 128
struct NaiveAttentionArgs {
  KvPages kv;
  uint32_t page_stride;
  uint32_t n_heads;
  float scale;
  uint32_t window;  // 0: all positions
  float softcap;    // 0: none
  uint32_t has_sinks;
  uint32_t causal;  // 0: tokens see positions after their own, up to `n_keys`
  uint32_t mask_heads;  // 0: no mask; else 1 or n_heads
  uint32_t mask_is_bits;
  uint32_t chunked;  // 1: tokens see their own chunk of `window` positions
};

// narrow_decode_attention<T, D>: out, [partial_out], [partial_ml], q, uint8 pages,
//   AttentionWork work, n_work, int32 page_tables, [sinks]
//   tiles of one split store their rows in `out`, others their sums in partial_out [work,
//   max_queries, n_heads, D] and partial_ml [work, max_queries, n_heads, 2], read only then
// grid (max work, n_kv_heads * ceil(n_heads / n_kv_heads * max_queries, kDecodeRows));
//       threads decode_threads
// D: 16, 32, 64
//
// batched_decode_attention<T, D>: out, [partial_out], [partial_ml], q, uint8 pages,
//   AttentionWork work, n_work, int32 page_tables, [sinks]
// the same for D: 80, 96, 128, 256
//
// prefill_attention<T, D>: out, q, uint8 pages, QueryTile tiles, n_tiles, int32 page_tables,
//   [sinks]
// grid (n_heads, max tiles, 2); threads 128; D of both kernels above
//
// T: f16, q8, q4 (others: naive_attention); D: for both keys and values
struct AttentionArgs {
  KvPages kv;
  uint32_t page_stride;
  uint32_t n_heads;
  float scale;
  float softcap;
  uint32_t window;
  uint32_t causal;       // 0: queries see positions after their own, up to `n_keys`
  uint32_t max_queries;  // per tile of decode attention, at most 16
  uint32_t has_sinks;
  uint32_t chunked;  // 1: queries see their own chunk of `window` positions
};

// latent_attention<T, K, V>: out, [partial_out], [partial_ml], q, uint8 pages, QueryTile tiles,
//   [AttentionWork work], n_work, int32 page_tables, [sinks]
//   values are the first V of the K numbers of keys
//   decoding: outputs as in batched_decode_attention, with V for D
//   prompts: has_work is 0, n_work counts the tiles
// grid (max work or tiles, n_kv_heads * ceil(n_heads / n_kv_heads * queries per tile,
//       kLatentRows)); threads 128
// T: f16, q8, q4 (others: naive_attention); K and V: 288 and 256, 576 and 512
struct LatentAttentionArgs {
  AttentionArgs attention;
  uint32_t has_work;
};

// merge_attention_splits: out, partial_out, partial_ml, AttentionWork work, n_work, [sinks]
//   for tiles of several splits
// grid (max work, n_heads * max_queries); threads 128
struct MergeAttentionArgs {
  uint32_t n_heads;
  uint32_t max_queries;
  uint32_t dim;
  uint32_t has_sinks;
};

// ---- greedy sampling ----------------------------------------------------------------------------

// Logits per threadgroup of argmax_chunks.
KERNEL_CONSTANT kArgmaxChunk = 1024;

// If every output of a run is plainly greedy (temperature 0, no forced token, no adjusted logits,
// n_top 0), two kernels with SamplingArgs replace those of sampling_arguments.h:
//
// argmax_chunks: ArgmaxPartial partial [outputs, ceil(vocabulary, kArgmaxChunk)], logits, n_outputs
// grid (ceil(vocabulary, kArgmaxChunk), max outputs); threads 256
//
// argmax_token: uint8 results, ArgmaxPartial partial, n_outputs
// grid (max outputs); threads 256
struct ArgmaxPartial {
  float value;   // the largest logit, ignoring NaN
  uint32_t id;   // its lowest id
  float sum;     // of exp(logit - value)
  uint32_t bad;  // 1 if a logit is NaN or +infinity
};

}  // namespace metal_args

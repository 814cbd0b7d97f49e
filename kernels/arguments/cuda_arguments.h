#pragma once

// Arguments of CUDA's kernels that have no Metal kernel with the same arguments, declared once for
// kernels, the host and the tests.
//
// KERNEL_STRUCT declares a struct of buffers, scalars and, as PART(Name), other such structs;
// KERNEL_STRUCT_OF adds fields to a plain struct. Kernels see Name, the host Name<Address>.

#include "kv_arguments.h"
#include "moe_arguments.h"
#include "sampling_arguments.h"

#if defined(__CUDACC_RTC__) || defined(FORGE_EMULATOR)
#define KERNEL_TEMPLATE
#define PART(Name) Name
#else
#define KERNEL_TEMPLATE template <class Address>
#define PART(Name) Name<Address>
#endif
#define KERNEL_STRUCT(Name, ...) \
  KERNEL_TEMPLATE struct Name {  \
    __VA_ARGS__                  \
  };
#define KERNEL_STRUCT_OF(Name, Base, ...) \
  KERNEL_TEMPLATE struct Name : Base {    \
    __VA_ARGS__                           \
  };

namespace cuda_args {

using namespace kernel_args;

// Rows of an operand: those of a list [*count], or, where the list is null, rows 0, 1, 2, ...
KERNEL_STRUCT(RowSet, READS(u32) count; READS(u32) list;)

// Rows of a weight, row_stride bytes apart, and the codebooks of formats that have some
// (codebooks.cuh).
KERNEL_STRUCT(WeightRows,
              READS(u8) data; READS(u64) codebooks; u64 row_stride; u32 rows; u32 cols;)

// The RMSNorm of rows of x, x / rms(x, eps) * (weight + offset), or none if the weight is null.
KERNEL_STRUCT(InputNorm, READS(float) weight; float eps; float offset;)

// Rows of x as a product reads them: rows of F32 before their norm, or rows of convert_rows,
// padded_cols 16-bit floats each, with the scales of their products.
KERNEL_STRUCT(ProductRows,
              READS(void) data; READS(float) scale; PART(InputNorm) norm; u32 padded_cols;)

// The operands that all products have. F32 rows of x and rows of out are those of the set;
// converted rows of x are numbered as they are in the set.
KERNEL_STRUCT(ProductOperands,
              WRITES(float) out; PART(ProductRows) x; PART(WeightRows) weight; PART(RowSet) set;)

// out = residual + alpha * activation(product + bias). Bias and residual may be null. Both begin at
// the product's first row of weights. Rows of out and of the residual are out_stride numbers apart.
KERNEL_STRUCT(Epilogue,
              READS(float) bias; READS(float) residual; float alpha; u32 activation;
              u32 out_stride;)

// The pairs of a product with experts: tiles of them, sorted by moe_group or head_groups, or, for
// kernels that compute one pair a block, the route of moe_route, null if every token takes all
// heads. The weight has as many rows for each expert as WeightRows says, and bias [experts, rows]
// may be null. x_shared: 1 if x has a row per token, 0 if it has one per pair.
KERNEL_STRUCT(ExpertPairs,
              READS(MoeTile) tiles; READS(u32) n_tiles; READS(u32) pairs; READS(float) route;
              READS(float) bias; u32 top_k; u32 x_shared;)

// The division of a product of decoded tokens among blocks: the `parts` of the columns of a tile,
// at least 1, whose sums are added up last; of products by tile_ring.cuh also the rows of a tile, a
// multiple of those of a warp, the slices of the columns that a block computes at once, 1, 2 or 4,
// and the stages of its ring. Blocks that have parts of the same tile need memory: partial [tiles,
// parts, tokens, rows], with 4 rows more for weights in registers, and arrivals [tiles], all 0
// before and after.
KERNEL_STRUCT(Tiling,
              WRITES(float) partial; WRITES(u32) arrivals; u32 parts; u32 rows; u32 slices;
              u32 stages;)

// raw: rows of n_blocks blocks as in a file, raw_row_bytes apart. out: rows out_row_bytes apart.
KERNEL_STRUCT(RepackRows,
              WRITES(u8) out; READS(u8) raw; u64 raw_row_bytes; u64 out_row_bytes; u32 rows;
              u32 n_blocks;)

// out [rows of the set, pieces, padded_cols] of 16-bit floats, scale [rows of the set, pieces],
// x [.., pieces, cols]. chunk_cols: 0, or the columns of the chunks in whose order columns are
// written (rounded_rows.cuh).
KERNEL_STRUCT(ConvertRows,
              WRITES(void) out; WRITES(float) scale; READS(float) x; PART(InputNorm) norm;
              PART(RowSet) set; u32 cols; u32 padded_cols; u32 chunk_cols;)

// Rows of x that the blocks of a product convert before they multiply; none if rows.x is null.
// counters [3]: all 0 before and after.
KERNEL_STRUCT(SharedConversion, PART(ConvertRows) rows; WRITES(u32) counters;)

// out [weight.rows, padded_cols]
KERNEL_STRUCT(Dequantize, WRITES(void) out; PART(WeightRows) weight; u32 padded_cols;)

// product [rows of the set, product_stride], of which `cols` columns are read; x_scale of
// convert_rows or null
KERNEL_STRUCT(LibraryProduct,
              WRITES(float) out; READS(float) product; READS(float) x_scale; PART(RowSet) set;
              u32 cols; u32 product_stride;)

KERNEL_STRUCT_OF(KvCache, KvPages, WRITES(u8) data;)

// sinks [n_heads]: logits without a value, or null.
//
// Kernels whose queries are masked read mask [tokens, mask_heads, *mask_stride words]: floats to
// add to scores, or bits, of which bit i % 32 of word i / 32 makes position i visible, within the
// limits of causality, the window and the sequence's end. mask_heads is 1 or n_heads.
//
// softcap and window are 0 for none. causal is 0 if queries see positions after their own, up to
// n_keys. chunked is 1 if they see their own chunk of `window` positions. max_queries is that of a
// tile.
KERNEL_STRUCT(AttentionArgs,
              READS(float) sinks; READS(u32) mask; READS(u32) mask_stride; float scale;
              float softcap; u32 n_heads; u32 window; u32 causal; u32 max_queries; u32 mask_heads;
              u32 mask_is_bits; u32 chunked;)

// The operands that all kernels of attention have. Page tables are page_stride entries apart.
KERNEL_STRUCT(AttentionOperands,
              WRITES(float) out; READS(float) q; PART(KvCache) kv; READS(i32) page_tables;
              u32 page_stride; PART(AttentionArgs) args;)

// For the rows of a set. n_keys: positions of each token's sequence.
KERNEL_STRUCT(NaiveAttention,
              READS(i32) positions; READS(i32) sequences; READS(i32) n_keys; PART(RowSet) rows;)

// For the rows of some tiles of out and in [tokens, cols].
KERNEL_STRUCT(CastRows,
              WRITES(void) out; READS(void) in; READS(QueryTile) tiles; READS(u32) n_tiles;
              u32 cols;)

KERNEL_STRUCT(PrefillAttention, READS(QueryTile) tiles; READS(u32) n_tiles;)

// For each entry of work and query of its tile, if the tile has several entries: sums
// out [max_queries, n_heads, dim], and the maximum and exponential sum ml [max_queries, n_heads,
// 2].
KERNEL_STRUCT(AttentionSplits, WRITES(float) out; WRITES(float) ml; READS(AttentionWork) work;)

// The rows of a product of Q, K and V, which rope_decode_attention prepares as rope_append does
// (RopeAppendArgs): qkv [tokens, (n_heads + 2 * n_kv_heads) * D], rope [tokens, 2 * n_freqs], norms
// of a head [D] or null.
KERNEL_STRUCT(NewRows,
              READS(float) qkv; READS(float) rope; READS(float) q_norm; READS(float) k_norm;
              float eps; float offset; u32 n_freqs; u32 interleaved;)

// For *n_work entries of work with their splits, or, where work is null, for as many tiles.
KERNEL_STRUCT(LatentAttention,
              PART(AttentionSplits) splits; READS(QueryTile) tiles; READS(u32) n_work;)

// The kernels that choose tokens (kernels/cuda/sampling.cuh), in the order in which they run.
// maxima, sums, bests and masses are [outputs, chunks], adjusted is [outputs, vocabulary],
// histograms is [outputs, kBuckets] and lists is [outputs, kListed]. arrivals [outputs]: all 0
// before and after. The last two are launched only if an output draws.
KERNEL_CONSTANT kBuckets = 1024;
KERNEL_CONSTANT kListed = 2048;

// Results of summarize_logits for each row of the grid.
struct DrawnRow {
  u32 is_drawn;       // 0: the result is complete, or there is no such output
  float largest;      // of the adjusted logits
  double normalizer;  // a log-probability is the model's logit less this
  u32 n_listed;       // 0; counted by draw_token
  u32 unused;
};

KERNEL_ARGUMENTS(SummarizeLogits, summarize_logits, SamplingArgs,
                 WRITES(u8) results; WRITES(DrawnRow) rows; WRITES(float) adjusted;
                 WRITES(float) maxima; WRITES(float) sums; WRITES(u64) bests;
                 WRITES(u64) histograms; WRITES(u32) arrivals; READS(float) logits;
                 READS(Sampling) sampling; READS(i32) history; READS(i32) bias_ids;
                 READS(float) bias_values; READS(u32) masks; READS(u32) n_outputs;)

KERNEL_ARGUMENTS(ShareHistogram, share_histogram, SamplingArgs,
                 WRITES(u64) histograms; READS(DrawnRow) rows; READS(float) logits;
                 READS(float) adjusted; READS(Sampling) sampling;)

KERNEL_ARGUMENTS(DrawToken, draw_token, SamplingArgs,
                 WRITES(u8) results; WRITES(DrawnRow) rows; WRITES(u64) masses;
                 WRITES(u64) lists; WRITES(u32) arrivals; READS(u64) histograms;
                 READS(u64) bests; READS(float) logits; READS(float) adjusted;
                 READS(Sampling) sampling;)

// An operation of step_kernel: a launch of a plan, with blocks of `threads` threads. kernel: its
// place among the kernels of the source; arguments: the offset of its parameters in the table, each
// aligned to 8 bytes.
struct StepOperation {
  u32 kernel, threads;
  u32 x, y, z;  // blocks
  u32 arguments;
};

// The parameter of step_kernel, as large as drivers from CUDA 12.1 on allow: the operations, then
// their parameters. arrivals [n_operations + 1]: all 0 before and after.
KERNEL_CONSTANT kStepTableBytes = 32752;
// Of a block of step_kernel: those of the largest operations.
KERNEL_CONSTANT kStepThreads = 256;
KERNEL_STRUCT(StepTable,
              WRITES(u32) arrivals; u64 n_operations;
              u64 words[kStepTableBytes / 8 - 2];)

}  // namespace cuda_args

#pragma once

// Arguments of CUDA's kernels that have no Metal kernel with the same arguments, declared once for
// kernels, the host and the tests.
//
// KERNEL_STRUCT declares a struct of buffers, scalars and, as PART(Name), other such structs;
// KERNEL_STRUCT_OF adds fields to a plain struct. Kernels see Name, the host Name<Address>.

#include "kv_arguments.h"

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

// out = residual + alpha * activation(product + bias). Bias and residual may be null. Both begin at
// the product's first row of weights; the residual has the row stride of the output.
KERNEL_STRUCT(Epilogue, READS(float) bias; READS(float) residual; float alpha; u32 activation;)

// Memory of the blocks of decode_gemm that divide the columns of a tile among themselves: partial
// [tiles, blocks, tokens, rows + 4], arrivals [tiles], all 0 before and after.
KERNEL_STRUCT(ColumnSplit, WRITES(float) partial; WRITES(u32) arrivals;)

KERNEL_STRUCT_OF(KvCache, KvPages, WRITES(u8) data;)

// sinks [n_heads]: logits without a value, or null.
//
// Kernels whose queries are masked read mask [tokens, mask_heads, *mask_stride words]: floats to add
// to scores, or bits, of which bit i % 32 of word i / 32 makes position i visible, within the limits
// of causality, the window and the sequence's end. mask_heads is 1 or n_heads.
//
// softcap and window are 0 for none. causal is 0 if queries see positions after their own, up to
// n_keys. max_queries is that of a tile.
KERNEL_STRUCT(AttentionArgs,
              READS(float) sinks; READS(u32) mask; READS(u32) mask_stride; float scale;
              float softcap; u32 n_heads; u32 window; u32 causal; u32 max_queries; u32 mask_heads;
              u32 mask_is_bits;)

// The operands that all kernels of attention have. Page tables are page_stride entries apart.
KERNEL_STRUCT(AttentionOperands,
              WRITES(float) out; READS(float) q; PART(KvCache) kv; READS(i32) page_tables;
              u32 page_stride; PART(AttentionArgs) args;)

// For the rows of a set. n_keys: positions of each token's sequence.
KERNEL_STRUCT(NaiveAttention,
              READS(i32) positions; READS(i32) sequences; READS(i32) n_keys; PART(RowSet) rows;)

KERNEL_STRUCT(PrefillAttention, READS(QueryTile) tiles; READS(u32) n_tiles;)

// For each entry of work and query of its tile, if the tile has several entries: sums
// out [max_queries, n_heads, dim], and the maximum and exponential sum ml [max_queries, n_heads, 2].
KERNEL_STRUCT(AttentionSplits, WRITES(float) out; WRITES(float) ml; READS(AttentionWork) work;)

// For *n_work entries of work with their splits, or, where work is null, for as many tiles.
KERNEL_STRUCT(LatentAttention,
              PART(AttentionSplits) splits; READS(QueryTile) tiles; READS(u32) n_work;)

}  // namespace cuda_args

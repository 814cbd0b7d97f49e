#pragma once

// Arguments of kernels that access KV pages, and of attention.

#include "kernel_arguments.h"

namespace kernel_args {

// The pages of one layer are a buffer of bytes: for each KV head of a page the keys
// [page_tokens, k_dim], their scales (Q8_0: an F16 for each 32 numbers of a row), the values
// [page_tokens, v_dim], and their scales, each of the four parts padded to 16 bytes.
struct KvPages {
  u64 page_bytes;
  u32 head_bytes;
  u32 v_offset;  // this and the next offsets: bytes from the start of a head
  u32 k_scales;
  u32 v_scales;
  u32 page_tokens;
  u32 n_kv_heads;
  u32 k_dim;
  u32 v_dim;
  u32 values_in_keys;  // 1: values are the first v_dim numbers of keys
};

// A token of a tree whose keys and values are also stored in the pages of another sequence, a
// branch, at the same position.
struct RowCopy {
  u32 row;
  u32 sequence;
};

// Of rope_append on CUDA: heads of a warp, and the most warps of a block.
KERNEL_CONSTANT kAppendHeads = 4;
KERNEL_CONSTANT kAppendWarps = 4;

// Instances are for the element type of the cache: float, f16, bf16, q8, q4. q_norm, k_norm: if
// their width is not 0. rope: if n_freqs is not 0.
struct RopeAppendArgs {
  KvPages kv;
  u32 page_stride;  // entries between page tables
  u32 n_heads;
  u32 q_norm_width;
  u32 k_norm_width;
  float eps;
  float offset;
  u32 n_freqs;
  u32 first_rotated;  // index of the first rotated element of a head
  u32 interleaved;
};
KERNEL_ARGUMENTS(RopeAppend, rope_append, RopeAppendArgs,
                 WRITES(float) q; READS(float) qkv; WRITES(u8) pages; READS(i32) positions;
                 READS(i32) sequences; READS(i32) page_tables; READS(u32) n_tokens;
                 READS(RowCopy) copies; READS(u32) n_copies; READS(float) q_norm;
                 READS(float) k_norm; READS(float) rope;)

// Keeps rows in the keys of a cache whose values are in its keys. Instances are for the element
// type of the cache: float, f16, bf16. x: if has_x; it is stored at the position of each token. out
// is the row stored at the position before, zeros at position 0. parents: the row of the token
// before each, or -1 if it is not in the run.
struct PreviousRowsArgs {
  KvPages kv;
  u32 page_stride;  // entries between page tables
  u32 has_x;
};
KERNEL_ARGUMENTS(PreviousRows, previous_rows, PreviousRowsArgs,
                 WRITES(float) out; READS(float) x; WRITES(u8) pages; READS(i32) positions;
                 READS(i32) sequences; READS(i32) page_tables; READS(u32) n_tokens;
                 READS(i32) parents; READS(RowCopy) copies; READS(u32) n_copies;)

// Consecutive rows of one sequence at consecutive positions, computed together by attention.
struct QueryTile {
  u32 first_row;
  u32 n_queries;
  u32 sequence;
  u32 first_position;
  u32 n_keys;  // positions of the sequence, for attention that is not causal
};

// A range of the positions that a tile of decoded queries sees, from split * split_tokens. The
// entries of a tile follow one another. An entry without queries is unused.
struct AttentionWork {
  QueryTile tile;
  u32 split;
  u32 split_tokens;
  u32 n_splits;
};

}  // namespace kernel_args

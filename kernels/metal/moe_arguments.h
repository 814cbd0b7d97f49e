#pragma once

// Arguments of the mixture of experts; conventions as in arguments.h.

#include "kernel_arguments.h"

namespace metal_args {

using namespace kernel_args;

// Pairs that are computed together: entries first .. first + count of the list of pairs. A pair is
// a token and one of its experts, numbered token * top_k + index of the expert.
struct MoeTile {
  uint32_t expert;
  uint32_t first;
  uint32_t count;
};

// moe_route: out [tokens, 2 top_k], logits [tokens, n_experts], [bias], [expert_scales], n_tokens
// grid (ceil(max tokens, 4)); threads 128
struct MoeRouteArgs {
  uint32_t n_experts;
  uint32_t top_k;
  uint32_t normalize;
  float scale;
  uint32_t scores;  // of forge.h
  uint32_t n_groups;
  uint32_t top_groups;
  uint32_t has_bias;
  uint32_t has_expert_scales;
};

// moe_group: MoeTile tiles, uint32 n_tiles, uint32 pairs [tokens * top_k], route, n_tokens,
//   [row_list]
//   for the tokens in uint32 row_list [*n_tokens] if given, else the first *n_tokens
//   at most min(pairs, n_experts + pairs / tile_tokens) tiles
// grid 1; threads 256; memory (2 n_experts + 1) * 4
struct MoeGroupArgs {
  uint32_t n_experts;
  uint32_t top_k;
  uint32_t tile_tokens;
  uint32_t has_row_list;
};

// head_groups: MoeTile tiles, uint32 n_tiles, uint32 pairs [tokens * n_heads], n_tokens
//   tiles and pairs as in moe_group, where every token takes all heads in order
// grid (ceil(max tokens * n_heads, 256)); threads 256
struct HeadGroupsArgs {
  uint32_t n_heads;
  uint32_t tile_tokens;
};

// grouped_matvec<F, tokens>: out, x, weight, tiles, n_tiles, pairs, [bias], codebooks
//   x [tokens, cols] when x_shared, else [tokens * top_k, cols]; out [tokens * top_k, expert_rows];
//   bias [n_experts, expert_rows]; tiles of moe_group or head_groups with tile_tokens = tokens
// grid (as matvec's x for expert_rows, max tiles); threads 256; instances as matvec's
//
// grouped_gemm<F>: the same buffers and struct, tiles of moe_group with tile_tokens = kGemmTokens;
// `split` is not read
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

// moe_combine: out, x [tokens, top_k * cols], route, [residual], n_tokens
// grid (ceil(cols, kRowElements), max tokens); threads 256
struct MoeCombineArgs {
  uint32_t cols;
  uint32_t top_k;
  uint32_t has_residual;
};

}  // namespace metal_args

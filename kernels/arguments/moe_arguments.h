#pragma once

// Arguments of the mixture of experts, and of products for each head, which are products with
// experts that every token takes.

#include "kernel_arguments.h"

namespace kernel_args {

// Pairs that are computed together: entries first .. first + count of the list of pairs. A pair is
// a token and one of its experts, numbered token * top_k + index of the expert.
struct MoeTile {
  u32 expert;
  u32 first;
  u32 count;
};

// bias: if has_bias. expert_scales: if has_expert_scales.
struct MoeRouteArgs {
  u32 n_experts;
  u32 top_k;
  u32 normalize;
  float scale;
  u32 scores;  // of forge.h
  u32 n_groups;
  u32 top_groups;
  float threshold;
  u32 has_bias;
  u32 has_expert_scales;
};
// out is [tokens, 2 top_k], logits [tokens, n_experts].
KERNEL_ARGUMENTS(MoeRoute, moe_route, MoeRouteArgs,
                 WRITES(float) out; READS(float) logits; READS(float) bias;
                 READS(float) expert_scales; READS(u32) n_tokens;)

// For the tokens in row_list [*n_tokens], if has_row_list, else for the first *n_tokens. There are
// at most min(pairs, n_experts + pairs / tile_tokens) tiles.
struct MoeGroupArgs {
  u32 n_experts;
  u32 top_k;
  u32 tile_tokens;
  u32 has_row_list;
};
KERNEL_ARGUMENTS(MoeGroup, moe_group, MoeGroupArgs,
                 WRITES(MoeTile) tiles; WRITES(u32) n_tiles; WRITES(u32) pairs; READS(float) route;
                 READS(u32) n_tokens; READS(u32) row_list;)

// Tiles and pairs as in moe_group, where every token takes all heads in order.
struct HeadGroupsArgs {
  u32 n_heads;
  u32 tile_tokens;
};
KERNEL_ARGUMENTS(HeadGroups, head_groups, HeadGroupsArgs,
                 WRITES(MoeTile) tiles; WRITES(u32) n_tiles; WRITES(u32) pairs;
                 READS(u32) n_tokens;)

// residual: if has_residual.
struct MoeCombineArgs {
  u32 cols;
  u32 top_k;
  u32 has_residual;
};
// x is [tokens, top_k * cols].
KERNEL_ARGUMENTS(MoeCombine, moe_combine, MoeCombineArgs,
                 WRITES(float) out; READS(float) x; READS(float) route; READS(float) residual;
                 READS(u32) n_tokens;)

}  // namespace kernel_args

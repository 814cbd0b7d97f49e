#pragma once

// Arguments of the kernels that compute one row of activations at a time.

#include "kernel_arguments.h"

namespace kernel_args {

// Elements of a row per block of an elementwise kernel.
KERNEL_CONSTANT kRowElements = 1024;

// Looks up rows id / period % rows of an embedding of any format and adds x, if has_x; `codebooks`
// holds the tables of the IQ types.
struct EmbedArgs {
  u64 row_stride;
  u32 cols;
  float scale;
  u32 period;
  u32 rows;
  u32 has_x;
};
KERNEL_ARGUMENTS(Embed, embed, EmbedArgs,
                 WRITES(float) out; READS(i32) ids; READS(u32) n_tokens; READS(u8) weight;
                 READS(float) x; READS(u64) codebooks;)

// The weight has the columns of one group, and weight_groups, 1 or `groups`, rows. residual: if
// has_residual.
struct RmsNormArgs {
  u32 cols;
  u32 groups;
  u32 weight_groups;
  float eps;
  float offset;
  u32 has_residual;
};
KERNEL_ARGUMENTS(RmsNorm, rms_norm, RmsNormArgs,
                 WRITES(float) out; READS(float) x; READS(float) weight; READS(float) residual;
                 READS(u32) n_rows;)

// sum = residual + (x_weight ? x / rms(x, eps) * (x_weight + offset) : x)
// out = sum / rms(sum, next_eps) * (weight + next_offset); sum may be the residual itself
// x_weight: if has_x_weight
struct FusedResidualRmsNormArgs {
  u32 cols;
  float eps;
  float offset;
  float next_eps;
  float next_offset;
  u32 has_x_weight;
};
KERNEL_ARGUMENTS(FusedResidualRmsNorm, fused_residual_rms_norm, FusedResidualRmsNormArgs,
                 WRITES(float) out; WRITES(float) sum; READS(float) x; READS(float) x_weight;
                 READS(float) residual; READS(float) weight; READS(u32) n_rows;)

// bias: if has_bias.
struct LayerNormArgs {
  u32 cols;
  float eps;
  u32 has_bias;
};
KERNEL_ARGUMENTS(LayerNorm, layer_norm, LayerNormArgs,
                 WRITES(float) out; READS(float) x; READS(float) weight; READS(float) bias;
                 READS(u32) n_rows;)

struct GluArgs {
  u32 out_cols;
  u32 width;
  u32 unit;  // of forge.h
};
KERNEL_ARGUMENTS(Glu, glu, GluArgs, WRITES(float) out; READS(float) x; READS(u32) n_rows;)

struct GatherOutputsArgs {
  u32 cols;
};
KERNEL_ARGUMENTS(GatherOutputs, gather_outputs, GatherOutputsArgs,
                 WRITES(float) out; READS(float) x; READS(i32) output_rows; READS(u32) n_outputs;)

// Piece p of group g of out is scale * x_p[first + g * step ... + width - 1]. Buffers of pieces of
// no width are not read.
struct ColumnPiece {
  u32 cols;
  u32 width;
  u32 first;
  u32 step;
  float scale;
};
struct GatherColumnsArgs {
  u32 out_cols;
  u32 group_cols;
  ColumnPiece pieces[3];
};
KERNEL_ARGUMENTS(GatherColumns, gather_columns, GatherColumnsArgs,
                 WRITES(float) out; READS(float) x0; READS(float) x1; READS(float) x2;
                 READS(u32) n_rows;)

// Column i of out is column order[i] of x; order holds whole numbers as floats. With a route, each
// expert has its own order, and out has the columns for each of the top_k chosen experts.
// route: if routed.
struct PermuteColumnsArgs {
  u32 x_cols;  // cols or top_k * cols
  u32 cols;
  u32 out_cols;
  u32 routed;
};
KERNEL_ARGUMENTS(PermuteColumns, permute_columns, PermuteColumnsArgs,
                 WRITES(float) out; READS(float) x; READS(float) order; READS(float) route;
                 READS(u32) n_rows;)

// gate is [rows, gates]; each column applies to cols / gates neighbouring columns of x.
// residual: if has_residual.
struct SigmoidGateArgs {
  u32 cols;
  u32 gates;
  u32 has_residual;
};
KERNEL_ARGUMENTS(SigmoidGate, sigmoid_gate, SigmoidGateArgs,
                 WRITES(float) out; READS(float) x; READS(float) gate; READS(float) residual;
                 READS(u32) n_rows;)

// Groups of a row per block of gated_rms_norm, one per warp.
KERNEL_CONSTANT kNormGroups = 4;

// out = x / rms(x, eps) * weight * activation(gate), for each group of `width` columns. The weight
// has weight_groups rows: 1, or one for each group.
struct GatedRmsNormArgs {
  u32 cols;
  u32 width;
  u32 weight_groups;
  float eps;
  u32 activation;  // of forge.h
};
KERNEL_ARGUMENTS(GatedRmsNorm, gated_rms_norm, GatedRmsNormArgs,
                 WRITES(float) out; READS(float) x; READS(float) gate; READS(float) weight;
                 READS(u32) n_rows;)

// Results and ranks of a block of lora_products, and columns, one a thread, of a block of
// lora_sums, which has as many results.
KERNEL_CONSTANT kLoraRows = 4;
KERNEL_CONSTANT kLoraRanks = 8;
KERNEL_CONSTANT kLoraColumns = 256;

// The low-rank operation of csrc/common/operations.h is this kernel and the next one. A row has
// n_results results: result row * n_results + k is of block route[row][k] if routed, else of block
// k, whose ranks begin a_step (b_step) rows of a (b) after those of the block before it.
//
// products[result][rank] = scale * a[rank] x[result] for the scale of the rank's adapter in the
// row's sequence, 0 if that scale is. x_cols is cols, for one x of all results of a row, or
// n_results * cols. route is [rows, 2 n_results]. output_rows: if of_outputs.
struct LoraProductsArgs {
  u32 cols;
  u32 x_cols;
  u32 n_ranks;
  u32 n_results;
  u32 a_step;
  u32 routed;
  u32 n_adapters;
  u32 of_outputs;
};
KERNEL_ARGUMENTS(LoraProducts, lora_products, LoraProductsArgs,
                 WRITES(float) products; READS(float) x; READS(float) route; READS(float) a;
                 READS(float) ranks; READS(float) scales; READS(i32) sequences;
                 READS(i32) output_rows; READS(u32) n_rows;)

// out = residual + alpha * activation(y + sum over ranks of products[result][rank] b[rank]), where
// b[rank], of `width` numbers, begins at the first column of the rank. residual: if has_residual.
struct LoraSumsArgs {
  u32 cols;  // of a result
  u32 n_ranks;
  u32 n_results;
  u32 b_step;
  u32 routed;
  u32 width;
  float alpha;
  u32 activation;  // of forge.h
  u32 has_residual;
};
KERNEL_ARGUMENTS(LoraSums, lora_sums, LoraSumsArgs,
                 WRITES(float) out; READS(float) y; READS(float) products; READS(float) route;
                 READS(float) b; READS(float) ranks; READS(float) residual; READS(u32) n_rows;)

struct RopeTableArgs {
  u32 n_freqs;
  float scale;
};
// out is [tokens, 2 n_freqs].
KERNEL_ARGUMENTS(RopeTable, rope_table, RopeTableArgs,
                 WRITES(float) out; READS(i32) positions; READS(float) inv_freq;
                 READS(u32) n_tokens;)

// ---- operations on one number at a time ---------------------------------------------------------
//
// An operation of one value and some floats (MapOp of csrc/common/operations.h) is planned from its
// row of KERNEL_MAPS: its arguments are the columns of the value, then those floats.

struct SoftcapArgs {
  u32 cols;
  float cap;
};
struct ClampArgs {
  u32 cols;
  float limit;
};
struct XieluArgs {
  u32 cols;
  float alpha_p;
  float alpha_n;
  float beta;
  float eps;
};

#define KERNEL_MAPS(X) X(Softcap, softcap) X(Clamp, clamp_values) X(Xielu, xielu)

#define KERNEL_MAP_ARGUMENTS(Name, kernel)      \
  KERNEL_ARGUMENTS(Name, kernel, Name##Args,    \
                   WRITES(float) out; READS(float) x; READS(u32) n_rows;)
KERNEL_MAPS(KERNEL_MAP_ARGUMENTS)

}  // namespace kernel_args

#pragma once

// Arguments of operations with recurrent state; conventions as in arguments.h.

#include "kernel_arguments.h"

namespace metal_args {

using namespace kernel_args;

// Rows first_row .. first_row + n_rows of a step are the tokens of one sequence; none if n_rows is
// 0. The slot holds the state after the previous tokens; with from_zero it is read as zeros.
struct SlotRun {
  uint32_t first_row;
  uint32_t n_rows;
  uint32_t slot;
  uint32_t from_zero;
};

// Columns and tokens of a run per threadgroup of causal_conv1d. No weight looks back more tokens,
// so only the first threadgroup of a run reads and writes the slot.
KERNEL_CONSTANT kConvColumns = 128;
KERNEL_CONSTANT kConvTokens = 64;

// causal_conv1d: out, x, weight, [bias], state, SlotRun runs
//   weight [cols, width], at most 64 wide; a slot of the state is [width - 1, cols]: the rows
//   before the run, replaced by the last rows of the run
// grid (ceil(cols, kConvColumns), runs, ceil(longest run, kConvTokens)); threads kConvColumns;
// memory width * kConvColumns * 4
struct CausalConv1dArgs {
  uint64_t slot_stride;  // numbers between slots
  uint32_t cols;
  uint32_t width;
  uint32_t activation;  // of forge.h
  uint32_t has_bias;
};

// Columns of a head's matrix per threadgroup of gated_delta_rule, and the lanes per column.
KERNEL_CONSTANT kDeltaColumns = 16;
KERNEL_CONSTANT kDeltaLanes = 8;
// The longest keys of gated_delta_rule.
KERNEL_CONSTANT kMostDeltaKeys = 256;

// gated_delta_rule<fours>: out, qkv, ba, rate, dt_bias, state, SlotRun runs
//   qkv [tokens, n_k_heads k_dim (q) | n_k_heads k_dim (k) | n_v_heads v_dim (v)]
//   ba [tokens, n_v_heads (b) | n_v_heads (a)]; a slot of the state is [v_dim, n_v_heads, k_dim]
// fours: 1, 2, 4, 8, the first with fours * 4 kDeltaLanes >= k_dim
// grid (ceil(v_dim, kDeltaColumns), n_v_heads, runs); threads kDeltaColumns kDeltaLanes
struct GatedDeltaRuleArgs {
  uint64_t slot_stride;  // numbers between slots
  uint32_t n_k_heads;
  uint32_t n_v_heads;
  uint32_t k_dim;
  uint32_t v_dim;
  uint32_t is_tiled;  // 1: value head h has key head h % n_k_heads; 0: neighbours share a key head
  float scale;
  float eps;
};

}  // namespace metal_args

#pragma once

// Arguments of operations with recurrent state.

#include "kernel_arguments.h"

namespace kernel_args {

// Rows first_row .. first_row + n_rows of a step are the tokens of one sequence; none if n_rows is
// 0. The slot holds the state after the previous tokens; with from_zero it is read as zeros.
struct SlotRun {
  u32 first_row;
  u32 n_rows;
  u32 slot;
  u32 from_zero;
};

// Columns and tokens of a run per block of causal_conv1d. No weight looks back more tokens, so only
// the first block of a run reads and writes the slot.
KERNEL_CONSTANT kConvColumns = 128;
KERNEL_CONSTANT kConvTokens = 64;

// weight is [cols, width], at most 64 wide; a slot of the state is [width - 1, cols]: the rows
// before the run, replaced by the last rows of the run. bias: if has_bias.
struct CausalConv1dArgs {
  u64 slot_stride;  // numbers between slots
  u32 cols;
  u32 width;
  u32 activation;  // of forge.h
  u32 has_bias;
};
KERNEL_ARGUMENTS(CausalConv1d, causal_conv1d, CausalConv1dArgs,
                 WRITES(float) out; READS(float) x; READS(float) weight; READS(float) bias;
                 WRITES(float) state; READS(SlotRun) runs;)

// Columns of a head's matrix per block of gated_delta_rule, and the lanes per column.
KERNEL_CONSTANT kDeltaColumns = 16;
KERNEL_CONSTANT kDeltaLanes = 8;
// The longest keys of gated_delta_rule.
KERNEL_CONSTANT kMostDeltaKeys = 256;

// qkv is [tokens, n_k_heads k_dim (q) | n_k_heads k_dim (k) | n_v_heads v_dim (v)], ba [tokens,
// n_v_heads (b) | n_v_heads (a)], and a slot of the state [v_dim, n_v_heads, k_dim]. Instances
// are for the numbers of a key that a lane holds: a power of two.
struct GatedDeltaRuleArgs {
  u64 slot_stride;  // numbers between slots
  u32 n_k_heads;
  u32 n_v_heads;
  u32 k_dim;
  u32 v_dim;
  u32 is_tiled;  // 1: value head h has key head h % n_k_heads; 0: neighbours share a key head
  float scale;
  float eps;
};
KERNEL_ARGUMENTS(GatedDeltaRule, gated_delta_rule, GatedDeltaRuleArgs,
                 WRITES(float) out; READS(float) qkv; READS(float) ba; READS(float) rate;
                 READS(float) dt_bias; WRITES(float) state; READS(SlotRun) runs;)

// Columns of a head's matrix per block of selective_scan, and the lanes per column.
KERNEL_CONSTANT kScanColumns = 16;
KERNEL_CONSTANT kScanLanes = 8;
// The largest d_state of selective_scan.
KERNEL_CONSTANT kMostScanStates = 256;

// xbc is [tokens, n_heads head_dim (x) | n_groups d_state (b) | n_groups d_state (c)], dt
// [tokens, n_heads], gate like out, and a slot of the state [head_dim, n_heads, d_state]. gate: if
// has_gate. Instances are for the fours of a column that a lane holds: 2, 4 or 8.
struct SelectiveScanArgs {
  u64 slot_stride;  // numbers between slots
  u32 n_heads;
  u32 n_groups;
  u32 d_state;
  u32 head_dim;
  u32 has_gate;
  float dt_min;
  float dt_max;
};
KERNEL_ARGUMENTS(SelectiveScan, selective_scan, SelectiveScanArgs,
                 WRITES(float) out; READS(float) xbc; READS(float) dt; READS(float) gate;
                 READS(float) rate; READS(float) dt_bias; READS(float) skip; WRITES(float) state;
                 READS(SlotRun) runs;)

}  // namespace kernel_args

#pragma once

// Gates, and the operations with recurrent state: see arguments.h.

#include "argument_constant.h"

namespace metal_args {

// sigmoid_gate: out, x, gate, [residual], n_rows
//   gate [rows, gates], each column for as many neighbouring columns of x
// grid (ceil(cols, kRowElements), max rows); threads 256
struct SigmoidGateArgs {
  uint32_t cols;
  uint32_t gates;
  uint32_t has_residual;
};

// Groups of a row that a threadgroup of gated_rms_norm takes, one a SIMD group.
METAL_ARGS_CONSTANT kNormGroups = 4;

// gated_rms_norm: out, x, gate, weight, n_rows
//   out = x / rms(x, eps) * weight * activation(gate), for each group of `width` columns
// grid (ceil(cols / width, kNormGroups), max rows); threads 32 kNormGroups
struct GatedRmsNormArgs {
  uint32_t cols;
  uint32_t width;
  float eps;
  uint32_t activation;  // of forge.h
};

// Rows first_row .. first_row + n_rows of a step are the tokens of one sequence; none for n_rows =
// 0. Its slot is what the tokens before left, or, from zero, is taken for zeros.
struct SlotRun {
  uint32_t first_row;
  uint32_t n_rows;
  uint32_t slot;
  uint32_t from_zero;
};

// Columns, and tokens of a run, of a threadgroup of causal_conv1d: no fewer tokens than the widest
// weight looks back, so that only a run's first threadgroup reads and writes the slot.
METAL_ARGS_CONSTANT kConvColumns = 128;
METAL_ARGS_CONSTANT kConvTokens = 64;

// causal_conv1d: out, x, weight, [bias], state, SlotRun runs
//   weight [cols, width], at most 64 wide; a slot of the state is [width - 1, cols]: the rows before
//   those of a run, which are replaced by its last ones
// grid (ceil(cols, kConvColumns), runs, ceil(longest run, kConvTokens)); threads kConvColumns;
// memory width * kConvColumns * 4
struct CausalConv1dArgs {
  uint64_t slot_stride;  // numbers from one slot to the next
  uint32_t cols;
  uint32_t width;
  uint32_t activation;  // of forge.h
  uint32_t has_bias;
};

// Columns of a head's matrix that a threadgroup of gated_delta_rule computes, and the lanes that
// share one.
METAL_ARGS_CONSTANT kDeltaColumns = 16;
METAL_ARGS_CONSTANT kDeltaLanes = 8;
// The longest keys that it takes.
METAL_ARGS_CONSTANT kMostDeltaKeys = 256;

// gated_delta_rule<fours>: out, qkv, ba, rate, dt_bias, state, SlotRun runs
//   qkv [tokens, n_k_heads k_dim (q) | n_k_heads k_dim (k) | n_v_heads v_dim (v)]
//   ba [tokens, n_v_heads (b) | n_v_heads (a)]; a slot of the state is [v_dim, n_v_heads, k_dim]
// fours: 1, 2, 4, 8, the first for which fours * 4 kDeltaLanes reaches k_dim
// grid (ceil(v_dim, kDeltaColumns), n_v_heads, runs); threads kDeltaColumns kDeltaLanes
struct GatedDeltaRuleArgs {
  uint64_t slot_stride;  // numbers from one slot to the next
  uint32_t n_k_heads;
  uint32_t n_v_heads;
  uint32_t k_dim;
  uint32_t v_dim;
  uint32_t is_tiled;  // whether value head h has key head h % n_k_heads, not neighbours the same
  float scale;
  float eps;
};

}  // namespace metal_args

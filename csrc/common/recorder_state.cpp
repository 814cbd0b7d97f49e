// Gates, and the operations that have recurrent state.

#include <cmath>

#include "error.h"
#include "recorder.h"

namespace forge {

void Recorder::use_state(const char* operation, const StateRef& state, uint64_t rows,
                         uint64_t cols) {
  const StateShape& shape = state->shape;
  require(shape.rows == rows && shape.cols == cols, operation, ": state is [", shape.rows, ", ",
          shape.cols, "]; expected [", rows, ", ", cols, "]");
  Program& program = *program_;
  for (const Op& op : program.ops) {
    const auto* conv = std::get_if<CausalConv1dOp>(&op);
    const auto* delta = std::get_if<GatedDeltaRuleOp>(&op);
    require(!(conv && conv->state == state) && !(delta && delta->state == state), operation,
            ": another operation of this step has the state already");
  }
  program.n_slots = program.n_slots ? std::min(program.n_slots, shape.n_slots) : shape.n_slots;
}

ValueId Recorder::sigmoid_gate(ValueId x, ValueId gate, ValueId residual) {
  check_open();
  const Value in = use("sigmoid_gate", "x", x);
  const Value by = use("sigmoid_gate", "gate", gate);
  require(by.rows == in.rows && in.cols % by.cols == 0, "sigmoid_gate: gate has ", by.cols,
          " columns; expected the rows of x and a divisor of its ", in.cols, " columns");
  check_residual("sigmoid_gate", residual, in.rows, in.cols);
  return add(SigmoidGateOp{x, gate, residual, 0}, in.rows, in.cols);
}

ValueId Recorder::gated_rms_norm(ValueId x, ValueId gate, WeightRef weight, float eps,
                                 uint32_t activation) {
  check_open();
  const Value in = use("gated_rms_norm", "x", x);
  const Value by = use("gated_rms_norm", "gate", gate);
  require(by.rows == in.rows && by.cols == in.cols, "gated_rms_norm: gate has ", by.cols,
          " columns; expected ", in.cols, " and the rows of x");
  require(weight->rows == 1 && in.cols % weight->cols == 0, "gated_rms_norm: weight is [",
          weight->rows, ", ", weight->cols, "]; expected one row and a divisor of the ", in.cols,
          " columns");
  check_activation("gated_rms_norm", activation);
  return add(GatedRmsNormOp{x, gate, std::move(weight), eps, activation, 0}, in.rows, in.cols);
}

ValueId Recorder::causal_conv1d(ValueId x, WeightRef weight, WeightRef bias, StateRef state,
                                uint32_t activation) {
  check_open();
  const Value in = use("causal_conv1d", "x", x);
  require(in.rows == Rows::tokens, "causal_conv1d: x must have tokens for rows");
  require(weight->rows == in.cols, "causal_conv1d: the weight has ", weight->rows,
          " rows, x has ", in.cols, " columns");
  require(weight->cols >= 2 && weight->cols <= kMostConvWidth, "causal_conv1d: the weight is ",
          weight->cols, " tokens wide; valid is 2 to ", kMostConvWidth);
  check_vector("causal_conv1d", "bias", bias, in.cols);
  check_activation("causal_conv1d", activation);
  use_state("causal_conv1d", state, weight->cols - 1, in.cols);
  return add(CausalConv1dOp{x, std::move(weight), std::move(bias), std::move(state), activation, 0},
             in.rows, in.cols);
}

ValueId Recorder::gated_delta_rule(ValueId qkv, ValueId ba, WeightRef rate, WeightRef dt_bias,
                                   StateRef state, uint32_t n_k_heads, uint32_t head_order,
                                   float scale, float eps) {
  check_open();
  const Value in = use("gated_delta_rule", "qkv", qkv);
  const Value gates = use("gated_delta_rule", "ba", ba);
  require(in.rows == Rows::tokens && gates.rows == Rows::tokens,
          "gated_delta_rule: qkv and ba must have tokens for rows");
  require(rate->rows == 1, "gated_delta_rule: rate has ", rate->rows, " rows; expected 1");
  const uint64_t n_v_heads = rate->cols;
  check_vector("gated_delta_rule", "dt_bias", dt_bias, n_v_heads);
  require(gates.cols == 2 * n_v_heads, "gated_delta_rule: ba has ", gates.cols,
          " columns; expected ", 2 * n_v_heads, ", two for each value head");
  require(n_k_heads >= 1 && n_v_heads % n_k_heads == 0, "gated_delta_rule: ", n_v_heads,
          " value heads are no multiple of ", n_k_heads, " key heads");
  const StateShape& shape = state->shape;
  require(shape.rows % n_v_heads == 0, "gated_delta_rule: a state of ", shape.rows,
          " rows is not for ", n_v_heads, " value heads");
  const uint64_t k_dim = shape.rows / n_v_heads, v_dim = shape.cols;
  const uint64_t cols = 2 * n_k_heads * k_dim + n_v_heads * v_dim;
  require(in.cols == cols, "gated_delta_rule: qkv has ", in.cols, " columns; the state implies ",
          cols);
  require(head_order <= FORGE_HEADS_TILED, "gated_delta_rule: unknown head order ", head_order);
  require(std::isfinite(scale) && eps >= 0, "gated_delta_rule: scale is ", scale, ", eps ", eps,
          "; valid are finite numbers, eps >= 0");
  use_state("gated_delta_rule", state, n_v_heads * k_dim, v_dim);
  GatedDeltaRuleOp op{.qkv = qkv,
                      .ba = ba,
                      .rate = std::move(rate),
                      .dt_bias = std::move(dt_bias),
                      .state = std::move(state),
                      .n_k_heads = n_k_heads,
                      .n_v_heads = static_cast<uint32_t>(n_v_heads),
                      .k_dim = static_cast<uint32_t>(k_dim),
                      .v_dim = static_cast<uint32_t>(v_dim),
                      .head_order = head_order,
                      .scale = scale,
                      .eps = eps,
                      .out = 0};
  return add(std::move(op), Rows::tokens, n_v_heads * v_dim);
}

}  // namespace forge

#pragma once

#include <memory>
#include <span>
#include <utility>

#include "program.h"

namespace forge {

// Builds a Program operation by operation; each call checks its arguments against what is recorded
// so far and returns the value it defines. The operations are those of forge.h.
class Recorder {
 public:
  explicit Recorder(const StepLimits& limits);

  ValueId embed(WeightRef weight, float scale);
  ValueId rms_norm(ValueId x, WeightRef weight, float eps, float weight_offset, ValueId residual);
  ValueId layer_norm(ValueId x, WeightRef weight, WeightRef bias, float eps);
  ValueId matmul(ValueId x, WeightRef weight, WeightRef bias, float alpha, uint32_t activation,
                 ValueId residual);
  ValueId head_matmul(ValueId x, WeightRef weight, uint32_t n_heads);
  ValueId rope_table(WeightRef inv_freq, float scale);
  ValueId rope_append(ValueId qkv, KvRef kv, uint32_t n_heads, WeightRef q_norm, WeightRef k_norm,
                      float eps, float weight_offset, ValueId rope, uint32_t rope_layout);
  ValueId attention(ValueId q, KvRef kv, uint32_t n_heads, float scale, uint32_t window,
                    float softcap, WeightRef sinks);
  ValueId glu(ValueId x, uint32_t width, uint32_t unit);
  ValueId sigmoid_gate(ValueId x, ValueId gate, ValueId residual);
  ValueId gated_rms_norm(ValueId x, ValueId gate, WeightRef weight, float eps,
                         uint32_t activation);
  ValueId causal_conv1d(ValueId x, WeightRef weight, WeightRef bias, StateRef state,
                        uint32_t activation);
  ValueId gated_delta_rule(ValueId qkv, ValueId ba, WeightRef rate, WeightRef dt_bias,
                           StateRef state, uint32_t n_k_heads, uint32_t head_order, float scale,
                           float eps);
  ValueId gather_columns(std::span<const forge_piece> pieces, uint32_t n_groups);
  ValueId permute_columns(ValueId x, ValueId route, WeightRef order);
  ValueId moe_route(ValueId logits, Routing routing);
  ValueId moe_matmul(ValueId x, ValueId route, WeightRef weight, WeightRef bias,
                     uint32_t n_experts);
  ValueId moe_combine(ValueId x, ValueId route, ValueId residual);
  ValueId gather_outputs(ValueId x);
  ValueId softcap(ValueId x, float cap);
  ValueId clamp(ValueId x, float limit);
  void sample(ValueId logits, uint32_t max_top);
  void keep(ValueId value);

  // The finished program; the recorder refuses further operations.
  std::shared_ptr<const Program> finish();

 private:
  // Appends an operation, whose result has so many columns.
  template <class OpType>
  ValueId add(OpType op, Rows rows, uint64_t cols) {
    op.out = add_value(rows, cols);
    const ValueId out = op.out;
    program_->ops.emplace_back(std::move(op));
    return out;
  }
  ValueId add_value(Rows rows, uint64_t cols);
  const Value& use(const char* operation, const char* role, ValueId id) const;
  void check_vector(const char* operation, const char* role, const WeightRef& weight,
                    uint64_t cols) const;
  void check_residual(const char* operation, ValueId residual, Rows rows, uint64_t cols) const;
  void check_activation(const char* operation, uint32_t activation) const;
  void use_kv(const char* operation, const KvRef& kv);
  void use_state(const char* operation, const StateRef& state, uint64_t rows, uint64_t cols);
  void check_open() const;

  std::shared_ptr<Program> program_;
  bool finished_ = false;
};

}  // namespace forge

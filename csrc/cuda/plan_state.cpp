// Operations with recurrent state.

#include <algorithm>
#include <bit>

#include "../common/error.h"
#include "plan_builder.h"

namespace forge::cuda {

namespace {

// Columns and tokens of a block of causal_conv1d.
constexpr uint32_t kConvColumns = 128;
constexpr uint32_t kConvTokens = 64;
// Columns per block of gated_delta_rule, lanes per column, and the maximum rows of a lane.
constexpr uint32_t kDeltaColumns = 16;
constexpr uint32_t kDeltaLanes = 8;
constexpr uint32_t kMostDeltaRows = 32;

}  // namespace

void PlanBuilder::emit(const CausalConv1dOp& op) {
  const uint32_t n = cols(op.x), width = static_cast<uint32_t>(op.weight->cols);
  const CudaStateCache& state = CudaStateCache::of(op.state);
  // Runs of few tokens are one piece each.
  const uint32_t pieces =
      shape_.prefill_tokens == 0 ? 1 : divide_up(shape_.prefill_tokens, kConvTokens);
  launch("causal_conv1d.cu", "causal_conv1d", {divide_up(n, kConvColumns), shape_.slots, pieces},
         kConvColumns, width * kConvColumns * 4, value(op.out), value(op.x), floats_of(op.weight),
         floats_of(op.bias), state.memory(), state.stride(), inputs_.slots, n, width,
         op.activation);
}

void PlanBuilder::emit(const GatedDeltaRuleOp& op) {
  const CudaStateCache& state = CudaStateCache::of(op.state);
  const uint32_t rows = std::max(std::bit_ceil(divide_up(op.k_dim(), kDeltaLanes)), 2u);
  require(rows <= kMostDeltaRows, "gated_delta_rule: keys of ", op.k_dim(),
          " numbers; the CUDA device takes up to ", kMostDeltaRows * kDeltaLanes);
  launch("gated_delta_rule.cu", "gated_delta_rule<" + std::to_string(rows) + ">",
         {divide_up(op.v_dim(), kDeltaColumns), op.n_v_heads(), shape_.slots},
         kDeltaColumns * kDeltaLanes, 0, value(op.out), value(op.qkv), value(op.ba),
         floats_of(op.rate), floats_of(op.dt_bias), state.memory(), state.stride(), inputs_.slots,
         op.n_k_heads, op.n_v_heads(), op.k_dim(), op.v_dim(), op.head_order, op.scale, op.eps);
}

}  // namespace forge::cuda

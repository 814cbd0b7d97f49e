// Operations with recurrent state.

#include <algorithm>
#include <bit>

#include "../common/error.h"
#include "../gpu/step_work.h"
#include "plan_builder.h"

namespace forge::metal {

using namespace metal_args;

namespace {

static_assert(sizeof(metal_args::SlotRun) == sizeof(forge::SlotRun));
static_assert(kConvTokens + 1 >= kMostConvWidth);

}  // namespace

void PlanBuilder::emit(const CausalConv1dOp& op) {
  const uint32_t n = cols(op.x), width = static_cast<uint32_t>(op.weight->cols);
  const MetalStateCache& state = MetalStateCache::of(op.state);
  // Runs of few tokens are one piece each.
  const uint32_t pieces = std::max(divide_up(shape_.prefill_tokens, kConvTokens), 1u);
  launch("causal_conv1d", "causal_conv1d", {divide_up(n, kConvColumns), shape_.slots, pieces},
         {kConvColumns, width * kConvColumns * sizeof(float)},
         {value(op.out), value(op.x), floats_of(op.weight), floats_of(op.bias), state.memory(),
          inputs_.slots},
         CausalConv1dArgs{.slot_stride = state.stride(),
                          .cols = n,
                          .width = width,
                          .activation = op.activation,
                          .has_bias = op.bias != nullptr});
}

void PlanBuilder::emit(const GatedDeltaRuleOp& op) {
  const MetalStateCache& state = MetalStateCache::of(op.state);
  require(op.k_dim() <= kMostDeltaKeys, "gated_delta_rule: keys of ", op.k_dim(),
          " numbers; the Metal device takes up to ", kMostDeltaKeys);
  const uint32_t fours = std::bit_ceil(divide_up(op.k_dim(), 4 * kDeltaLanes));
  launch("gated_delta_rule", "gated_delta_rule<" + std::to_string(fours) + ">",
         {divide_up(op.v_dim(), kDeltaColumns), op.n_v_heads(), shape_.slots},
         {kDeltaColumns * kDeltaLanes},
         {value(op.out), value(op.qkv), value(op.ba), floats_of(op.rate), floats_of(op.dt_bias),
          state.memory(), inputs_.slots},
         GatedDeltaRuleArgs{.slot_stride = state.stride(),
                            .n_k_heads = op.n_k_heads,
                            .n_v_heads = op.n_v_heads(),
                            .k_dim = op.k_dim(),
                            .v_dim = op.v_dim(),
                            .is_tiled = op.head_order,
                            .scale = op.scale,
                            .eps = op.eps});
}

}  // namespace forge::metal

// Launches of kernels of kernels/arguments, and what Metal adds to the operations that GPUs share.

#include <bit>

#include "../common/error.h"
#include "plan_builder.h"

namespace forge::metal {

void PlanBuilder::add_launch(const char* kernel, const std::string& instance,
                             const Geometry& geometry, std::span<const Place> buffers,
                             std::span<const uint8_t> scalars) {
  plan_.entries.emplace_back(device_.kernels.get(kernel, instance), geometry, buffers, scalars);
}

UniformRows<Place> PlanBuilder::uniform_rows(const WeightRef& weight) const {
  const WeightRows& rows = *metal_weight(*weight).unified;
  return {rows.type, rows.row_bytes, rows.place()};
}

void PlanBuilder::emit(const RmsNormOp& op) {
  if (const RmsNormOp* next = second_norm(op)) return emit_two_norms(op, *next);
  if (!emit_norm_with_product(op)) emit_norm(op);
}

void PlanBuilder::emit(const GatedDeltaRuleOp& op) {
  require(op.k_dim() <= kernel_args::kMostDeltaKeys, "gated_delta_rule: keys of ", op.k_dim(),
          " numbers; the Metal device takes up to ", kernel_args::kMostDeltaKeys);
  // Lanes hold numbers in fours.
  emit_delta_rule(op, std::bit_ceil(divide_up(op.k_dim(), 4 * kernel_args::kDeltaLanes)));
}

}  // namespace forge::metal

// Launches of kernels of kernels/arguments, and the operations on rows that are Metal's own.

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

}  // namespace forge::metal

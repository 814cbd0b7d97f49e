#include "arena_plan.h"

#include "panel_layout.h"

namespace forge::cpu {

namespace {

constexpr uint64_t kBlockFloats = sizeof(ActivationBlock) / sizeof(float);

}  // namespace

ScratchPlan plan_arena(const Program& program, const std::vector<const GluOp*>& gated_units,
                       const std::vector<bool>& is_blocks, uint64_t alignment) {
  Program planned = program;
  for (size_t i = 0; i < gated_units.size(); ++i) {
    if (!gated_units[i]) continue;
    // The product gives what the unit would, and the unit a value that no one reads.
    auto& product = std::get<MatmulOp>(planned.ops[i]);
    auto& unit = std::get<GluOp>(planned.ops[i + 1]);
    planned.values[product.out - 1].cols = 1;
    std::swap(product.out, unit.out);
    unit.x = {product.out};
  }
  for (size_t v = 0; v < is_blocks.size(); ++v) {
    uint64_t& cols = planned.values[v].cols;
    if (is_blocks[v]) cols = cols / kBlockCols * kBlockFloats;
  }
  return plan_scratch(planned, alignment);
}

}  // namespace forge::cpu

#include "gated_units.h"

#include "panel_layout.h"
#include "../common/host_weight.h"

namespace forge::cpu {

namespace {

// Whether the rows are those of one gate, then as many of up, each in whole panels of one type.
bool is_gate_and_up(const HostWeight& weight, uint64_t width) {
  if (weight.rows != 2 * width || width % kPanelRows != 0) return false;
  return weight.parts.size() == 1 ||
         (weight.parts.size() == 2 && weight.parts[0].rows == width);
}

// The unit that takes all that the product gives, and nothing else does.
const GluOp* unit_of(const Program& program, size_t index) {
  const auto* product = std::get_if<MatmulOp>(&program.ops[index]);
  if (!product || index + 1 == program.ops.size()) return nullptr;
  const auto* unit = std::get_if<GluOp>(&program.ops[index + 1]);
  if (!unit || unit->x != product->out) return nullptr;
  const bool plain = !product->bias && product->alpha == 1 && product->residual == 0 &&
                     product->activation == FORGE_IDENTITY;
  if (!plain || !program.is_read_once(product->out)) return nullptr;
  const auto& weight = static_cast<const HostWeight&>(*product->weight);
  return is_gate_and_up(weight, unit->width) ? unit : nullptr;
}

}  // namespace

std::vector<const GluOp*> find_gated_units(const Program& program) {
  std::vector<const GluOp*> units(program.ops.size());
  for (size_t i = 0; i < program.ops.size(); ++i) units[i] = unit_of(program, i);
  return units;
}

}  // namespace forge::cpu

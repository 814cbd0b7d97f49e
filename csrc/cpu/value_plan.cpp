#include "value_plan.h"

#include <algorithm>

#include "../common/host_weight.h"
#include "cpu_weight.h"
#include "panel_layout.h"

namespace forge::cpu {

namespace {

// True if the rows are those of a gate, then as many of up, each in whole panels of one type.
bool is_gate_and_up(const HostWeight& weight, uint64_t width) {
  if (weight.rows != 2 * width || width % kPanelRows != 0) return false;
  return weight.parts.size() == 1 ||
         (weight.parts.size() == 2 && weight.parts[0].rows == width);
}

// Returns the unit that is the only reader of a product and reads all of it; null if there is none.
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

// Returns the value that an operation can write as blocks, or 0.
template <class OpType>
ValueId written(const OpType&) {
  return 0;
}
ValueId written(const RmsNormOp& op) { return op.out; }
ValueId written(const LayerNormOp& op) { return op.out; }
ValueId written(const GluOp& op) { return op.out; }
ValueId written(const AttentionOp& op) {
  // Heads are written one by one, so each must be whole blocks.
  return op.kv->shape.v_head_dim % kBlockCols == 0 ? op.out : 0;
}

bool multiplies_blocks(const WeightRef& weight) {
  return is_all_quantized(static_cast<const HostWeight&>(*weight));
}

// Returns how many of its reads of a value an operation could make as blocks.
template <class OpType>
size_t block_reads(const OpType&, ValueId) {
  return 0;
}
size_t block_reads(const MatmulOp& op, ValueId id) {
  return op.x == id && multiplies_blocks(op.weight) ? 1 : 0;
}
size_t block_reads(const HeadMatmulOp& op, ValueId id) {
  return op.x == id && multiplies_blocks(op.weight) ? 1 : 0;
}
size_t block_reads(const MoeMatmulOp& op, ValueId id) {
  return op.x == id && multiplies_blocks(op.weight) ? 1 : 0;
}

bool are_all_reads_of_blocks(const Program& program, ValueId id) {
  size_t reads = 0, of_blocks = 0;
  for (const Op& op : program.ops) {
    visit_op(
        [&](const auto& typed) {
          reads += static_cast<size_t>(std::ranges::count(typed.reads(), id));
          of_blocks += block_reads(typed, id);
        },
        op);
  }
  return reads > 0 && reads == of_blocks && !program.value(id).keep;
}

constexpr uint64_t kBlockFloats = sizeof(ActivationBlock) / sizeof(float);

}  // namespace

std::vector<const GluOp*> find_gated_units(const Program& program) {
  std::vector<const GluOp*> units(program.ops.size());
  for (size_t i = 0; i < program.ops.size(); ++i) units[i] = unit_of(program, i);
  return units;
}

std::vector<bool> find_block_values(const Program& program) {
  std::vector<bool> is_blocks(program.values.size());
  for (const Op& op : program.ops) {
    const ValueId id = visit_op([](const auto& typed) { return written(typed); }, op);
    if (id != 0) is_blocks[id - 1] = are_all_reads_of_blocks(program, id);
  }
  return is_blocks;
}

ScratchPlan plan_arena(const Program& program, const std::vector<const GluOp*>& gated_units,
                       const std::vector<bool>& is_blocks, uint64_t alignment) {
  Program planned = program;
  for (size_t i = 0; i < gated_units.size(); ++i) {
    if (!gated_units[i]) continue;
    // The product writes the value of the unit; the unit gets one column that nothing reads.
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

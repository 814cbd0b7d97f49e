#include "scratch_plan.h"

#include <algorithm>

namespace forge {

namespace {

struct Block {
  uint64_t begin;
  uint64_t end;
};

// The lowest gap of `size` between the live blocks, which are sorted by begin.
uint64_t first_fit(const std::vector<Block>& live, uint64_t size) {
  uint64_t at = 0;
  for (const Block& block : live) {
    if (block.begin - at >= size) break;
    at = block.end;
  }
  return at;
}

}  // namespace

ScratchPlan plan_scratch(const Program& program, uint64_t alignment) {
  const size_t n_values = program.values.size();
  std::vector<size_t> last_use(n_values, 0);
  for (size_t i = 0; i < program.ops.size(); ++i) {
    visit_op(
        [&](const auto& op) {
          if (op.out != 0) last_use[op.out - 1] = i;
          for (const ValueId id : op.reads()) {
            if (id != 0) last_use[id - 1] = i;
          }
        },
        program.ops[i]);
    // GPUs compute a norm in the product that reads it, and a gated unit in the product before it.
    const auto* glu = std::get_if<GluOp>(&program.ops[i]);
    const size_t at = glu && i > 0 ? i - 1 : i;
    // They also compute the rows of q, k and v in the attention that reads them.
    const auto* append = i > 0 ? std::get_if<RopeAppendOp>(&program.ops[i - 1]) : nullptr;
    if (append && std::holds_alternative<AttentionOp>(program.ops[i])) {
      last_use[append->qkv - 1] = i;
      if (append->rope != 0) last_use[append->rope - 1] = i;
    }
    const auto* product = std::get_if<MatmulOp>(&program.ops[at]);
    const auto* experts = std::get_if<MoeMatmulOp>(&program.ops[at]);
    if (experts && glu && glu->x == experts->out) {
      last_use[experts->x - 1] = last_use[experts->route - 1] = i;
    }
    if (!product || (glu && glu->x != product->out)) continue;
    last_use[product->x - 1] = i;
    const auto* norm = at > 0 ? std::get_if<RmsNormOp>(&program.ops[at - 1]) : nullptr;
    if (norm && product->x == norm->out) last_use[norm->x - 1] = i;
  }
  for (size_t v = 0; v < n_values; ++v) {
    if (program.values[v].keep) last_use[v] = program.ops.size();
  }

  ScratchPlan plan;
  plan.offsets.resize(n_values);
  std::vector<Block> live;
  std::vector<Block> block_of(n_values);
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const ValueId out = visit_op([](const auto& op) { return op.out; }, program.ops[i]);
    if (out != 0) {
      uint64_t size = program.max_rows(out) * program.value(out).cols;
      size = (size + alignment - 1) / alignment * alignment;
      const uint64_t begin = first_fit(live, size);
      const Block block{begin, begin + size};
      plan.offsets[out - 1] = begin;
      plan.elements = std::max(plan.elements, block.end);
      block_of[out - 1] = block;
      const auto begins_before = [](const Block& a, const Block& b) { return a.begin < b.begin; };
      live.insert(std::upper_bound(live.begin(), live.end(), block, begins_before), block);
    }
    for (size_t v = 0; v < n_values; ++v) {
      if (last_use[v] != i || block_of[v].end == 0) continue;
      std::erase_if(live, [&](const Block& block) { return block.begin == block_of[v].begin; });
      block_of[v] = {};
    }
  }
  return plan;
}

bool are_apart(const Program& program, const ScratchPlan& plan, ValueId a, ValueId b) {
  const auto end = [&](ValueId id) {
    return plan.offsets[id - 1] + program.max_rows(id) * program.value(id).cols;
  };
  return end(a) <= plan.offsets[b - 1] || end(b) <= plan.offsets[a - 1];
}

bool is_safe_over(const Program& program, const ScratchPlan& plan, ValueId out, ValueId in) {
  return plan.offsets[out - 1] == plan.offsets[in - 1] || are_apart(program, plan, out, in);
}

}  // namespace forge

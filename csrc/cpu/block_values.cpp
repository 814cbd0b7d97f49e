#include "block_values.h"

#include "../common/host_weight.h"
#include "packed_weight.h"
#include "panel_layout.h"

namespace forge::cpu {

namespace {

// The value that an operation can write as blocks, or 0.
template <class OpType>
ValueId written(const OpType&) {
  return 0;
}
ValueId written(const RmsNormOp& op) { return op.out; }
ValueId written(const LayerNormOp& op) { return op.out; }
ValueId written(const GluOp& op) { return op.out; }
ValueId written(const AttentionOp& op) {
  // Heads are written one by one.
  return op.kv->shape.v_head_dim % kBlockCols == 0 ? op.out : 0;
}

bool multiplies_blocks(const WeightRef& weight) {
  return is_all_quantized(static_cast<const HostWeight&>(*weight));
}

// How many of its reads of a value an operation could do of blocks.
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
    std::visit(
        [&](const auto& typed) {
          reads += static_cast<size_t>(std::ranges::count(typed.reads(), id));
          of_blocks += block_reads(typed, id);
        },
        op);
  }
  return reads > 0 && reads == of_blocks && !program.value(id).keep;
}

}  // namespace

std::vector<bool> find_block_values(const Program& program) {
  std::vector<bool> is_blocks(program.values.size());
  for (const Op& op : program.ops) {
    const ValueId id = std::visit([](const auto& typed) { return written(typed); }, op);
    if (id != 0) is_blocks[id - 1] = are_all_reads_of_blocks(program, id);
  }
  return is_blocks;
}

}  // namespace forge::cpu

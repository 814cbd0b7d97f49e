#pragma once

#include <vector>

#include "../common/scratch_plan.h"

namespace forge::cpu {

// Finds the gated units that are computed together with the product before them, so that gate and
// up are never written to memory. Returns, for each operation that is such a product, the unit that
// follows it; null for every other operation.
std::vector<const GluOp*> find_gated_units(const Program& program);

// Returns, for each value v at v - 1, true if it is stored as signed bytes (ActivationBlocks)
// instead of floats: only products with quantised weights read it, and the operation that defines
// it can write blocks.
std::vector<bool> find_block_values(const Program& program);

// Plans the arena of a program, in floats, given the results of find_gated_units and
// find_block_values.
ScratchPlan plan_arena(const Program& program, const std::vector<const GluOp*>& gated_units,
                       const std::vector<bool>& is_blocks, uint64_t alignment);

}  // namespace forge::cpu

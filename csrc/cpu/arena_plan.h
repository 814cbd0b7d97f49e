#pragma once

#include <vector>

#include "../common/scratch_plan.h"

namespace forge::cpu {

// Plans the arena of a program, in floats, for an executor that computes gated units with their
// products (`gated_units`: see find_gated_units) and keeps some values as blocks (see
// find_block_values).
ScratchPlan plan_arena(const Program& program, const std::vector<const GluOp*>& gated_units,
                       const std::vector<bool>& is_blocks, uint64_t alignment);

}  // namespace forge::cpu

#pragma once

#include <vector>

#include "../common/program.h"
#include "../common/scratch_plan.h"

namespace forge::cpu {

// Gated units whose product is computed together with them, so that gate and up never go to memory:
// for each operation that is such a product, the unit that follows it; null elsewhere.
std::vector<const GluOp*> find_gated_units(const Program& program);

// Plans the scratch of a program in which these products write what the units give.
ScratchPlan plan_gated(const Program& program, const std::vector<const GluOp*>& units,
                       uint64_t alignment);

}  // namespace forge::cpu

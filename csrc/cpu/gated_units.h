#pragma once

#include <vector>

#include "../common/program.h"

namespace forge::cpu {

// Gated units whose product is computed together with them, so that gate and up never go to memory:
// for each operation that is such a product, the unit that follows it; null elsewhere.
std::vector<const GluOp*> find_gated_units(const Program& program);

}  // namespace forge::cpu

#pragma once

#include <vector>

#include "../common/program.h"

namespace forge::cpu {

// Whether each value of a program (v at v - 1) is kept as signed bytes, ActivationBlocks instead of
// floats: where only products that multiply such read it, and the operation that gives it can write
// it so. What would be floats in between then never goes to memory.
std::vector<bool> find_block_values(const Program& program);

}  // namespace forge::cpu

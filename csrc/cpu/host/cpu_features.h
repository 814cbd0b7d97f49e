#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "../kernel_table.h"

namespace forge::cpu {

// Returns the instruction set extensions of this processor that kernels use, by their usual names.
const std::vector<std::string>& cpu_features();

// Returns the kernels that this processor can run, the fastest first.
std::vector<const KernelTable*> available_kernels();

// Returns the kernels called `name`, or the fastest for "". Throws FORGE_INVALID_ARGUMENT, with the
// valid names, for an unknown name.
const KernelTable& choose_kernels(std::string_view name);

}  // namespace forge::cpu

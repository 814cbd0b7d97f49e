#pragma once

// The processor of this machine, and the kernels that it can run.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../kernel_table.h"
#include "thread_pool.h"

namespace forge::cpu {

// Returns the name of the processor, as in "AMD EPYC 9654 96-Core Processor".
std::string processor_name();

// Returns the number of physical cores that the affinity mask and the quota of the cgroup allow
// this process to use, of the nodes of this machine.
uint32_t usable_cores(const std::vector<NumaNode>& nodes);

// Measures the bytes a second that all threads of a pool together read from memory: the best of
// several rounds over far more than caches hold.
uint64_t read_bandwidth(ThreadPool& pool);

// Returns the instruction set extensions of this processor that kernels use, by their usual names.
const std::vector<std::string>& cpu_features();

// Returns the kernels that this processor can run, the fastest first.
std::vector<const KernelTable*> available_kernels();

// Returns the kernels with the products FORGE_PRODUCTS_... that go with `kernels`. Throws
// FORGE_UNSUPPORTED if there are none.
const KernelTable& with_products(const KernelTable& kernels, uint32_t products);

// Returns the kernels called `name`, or the fastest for "". Throws FORGE_INVALID_ARGUMENT, with the
// valid names, for an unknown name.
const KernelTable& choose_kernels(std::string_view name);

}  // namespace forge::cpu

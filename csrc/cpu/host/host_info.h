#pragma once

#include <cstdint>
#include <string>

#include "thread_pool.h"

namespace forge::cpu {

// Returns the name of the processor, as in "AMD EPYC 9654 96-Core Processor".
std::string processor_name();

// Returns the number of physical cores that the affinity mask and the quota of the cgroup allow
// this process to use.
uint32_t usable_cores();

// Measures the bytes a second that all threads of a pool together read from memory: the best of
// several rounds over far more than caches hold.
uint64_t read_bandwidth(ThreadPool& pool);

}  // namespace forge::cpu

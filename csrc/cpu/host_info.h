#pragma once

#include <cstdint>
#include <string>

namespace forge::cpu {

// The processor's own name, as in "AMD EPYC 9654 96-Core Processor".
std::string processor_name();

// How many threads keep this process's share of the machine busy: its physical cores, as far as the
// affinity mask and the cgroup's quota let it use them.
uint32_t usable_cores();

}  // namespace forge::cpu

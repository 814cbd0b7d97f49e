#pragma once

#include <cstdint>

namespace forge {

// The most memory that this process has held resident so far, in bytes; 0 if unknown.
uint64_t peak_resident_bytes();

// The memory that this process may use, in bytes: the machine's, or the least that a control group
// around the process grants; 0 if unknown.
uint64_t host_memory_bytes();

// The memory that is free for this process now, in bytes: what the machine and the control groups
// around the process have left, including cached files, which they can drop; 0 if unknown.
uint64_t free_memory_bytes();

}  // namespace forge

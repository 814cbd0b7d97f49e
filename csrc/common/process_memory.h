#pragma once

#include <cstdint>

namespace forge {

// The most memory that this process has held resident so far, in bytes; 0 where the system does not
// tell.
uint64_t peak_resident_bytes();

}  // namespace forge

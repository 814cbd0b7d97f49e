#pragma once

#include "buffer.h"

namespace forge::metal {

// Bytes a second that a plain copy on the GPU reads and writes together; 0 where there is no room
// for one that tells anything.
uint64_t measure_bandwidth(const std::shared_ptr<const Device>& device);

}  // namespace forge::metal

// The number of blocks of a launch, and the resources of each.
#pragma once

#include <cstdint>

namespace flash_attn {

struct LaunchShape {
  uint32_t x;
  uint32_t y;
  uint32_t z;
  int32_t threads;
  int32_t shared_bytes;
  // The kernel begins while the previous one runs, and waits for its results itself.
  bool dependent = false;
};

}  // namespace flash_attn

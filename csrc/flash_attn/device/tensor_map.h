// The description of a tensor for TMA: opaque to kernels, written by the host.
#pragma once

#include "types.h"

namespace flash_attn {

struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

}  // namespace flash_attn

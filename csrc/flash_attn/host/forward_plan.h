// The schedule of the forward kernels.
#pragma once

#include "args.h"
#include "flash_attn.h"
#include "host/runtime.h"

namespace flash_attn {

// The order of tiles of `rows` query rows.
TileSchedule plan_schedule(const flash_attn_params &params, int32_t rows, const Device &device);

}  // namespace flash_attn

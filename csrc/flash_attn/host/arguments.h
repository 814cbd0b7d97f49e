// Conversion of the C ABI's parameters to the arguments of kernels.
#pragma once

#include "args.h"
#include "flash_attn.h"

namespace flash_attn {

QueryArgs query_args(uint32_t function, const flash_attn_params &params);
KeyValueArgs key_value_args(uint32_t function, const flash_attn_params &params);
ScoreArgs score_args(const flash_attn_params &params);

}  // namespace flash_attn

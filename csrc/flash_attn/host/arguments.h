// Conversion of the C ABI's parameters to the arguments of kernels.
#pragma once

#include "args.h"
#include "flash_attn.h"

namespace flash_attn {

// Division by a number from 1 to 2^31 - 1.
Divisor divisor(int64_t value);

QueryArgs query_args(uint32_t function, const flash_attn_params &params);
KeyValueArgs key_value_args(uint32_t function, const flash_attn_params &params);
ScoreArgs score_args(const flash_attn_params &params);
E4m3Args e4m3_args(const flash_attn_params &params);
MaskArgs mask_args(const flash_attn_params &params);

}  // namespace flash_attn

// The two types of queries, keys, values and outputs.
#pragma once

#include <cstdint>

namespace flash_attn {

struct f16 {
  uint16_t bits;
};

struct bf16 {
  uint16_t bits;
};

}  // namespace flash_attn

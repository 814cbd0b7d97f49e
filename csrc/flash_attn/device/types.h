// The types of queries, keys, values and outputs.
#pragma once

#include <cstdint>

namespace flash_attn {

struct f16 {
  uint16_t bits;
};

struct bf16 {
  uint16_t bits;
};

/// Two neighbouring numbers of a row of Q8_0.
struct q8_pair {
  uint16_t bits;
};

}  // namespace flash_attn

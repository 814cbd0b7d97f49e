#pragma once

#include <cstdint>

namespace forge {

// a / b, rounded up.
constexpr uint32_t divide_up(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

// n, rounded up to a multiple.
constexpr uint64_t padded_to(uint64_t n, uint64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

}  // namespace forge

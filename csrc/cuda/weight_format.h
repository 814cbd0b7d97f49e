#pragma once

#include <string>

#include "../common/quant/weight_type.h"

namespace forge::cuda {

// How weights of a type lie on the device: rows begin at multiples of 16 bytes, and blocks whose
// fields would not be aligned are split into planes, one a field.
struct WeightFormat {
  std::string name;       // the template argument of kernels, as in "FormatQ8_0"
  bool repacked = false;  // whether rows are split into planes (kernel repack_rows)
  uint32_t warp_rows = 2;     // rows that a warp of matvec computes together
  bool needs_codebooks = false;
  bool is_generic = false;  // read block by block: kernels for 1 and 4 tokens only
};

WeightFormat weight_format(WeightType type);

// Bytes from one row to the next on the device.
uint64_t device_row_bytes(WeightType type, uint64_t cols);

}  // namespace forge::cuda

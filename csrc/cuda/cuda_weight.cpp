#include "cuda_weight.h"

#include "../gpu/rounding.h"

namespace forge::cuda {

namespace {

// Alignment of parts, for any vector load.
constexpr uint64_t kPartAlignment = 256;

}  // namespace

CudaWeight::CudaWeight(WeightSource source) : HostWeight(std::move(source)) {
  uint64_t row = 0;
  for (const WeightPart& part : parts) {
    const bool extends = !device_parts_.empty() && device_parts_.back().type == part.type;
    if (!extends) {
      matrix_bytes_ = padded_to(matrix_bytes_, kPartAlignment);
      device_parts_.push_back(
          {part.type, row, 0, device_row_bytes(part.type, cols), matrix_bytes_});
    }
    DevicePart& last = device_parts_.back();
    last.rows += part.rows;
    matrix_bytes_ += part.rows * last.row_bytes;
    row += part.rows;
  }
}

}  // namespace forge::cuda

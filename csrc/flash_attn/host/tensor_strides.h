// Tensors as the host describes them for TMA, and their strides as cuTensorMapEncodeTiled takes
// them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "device/tensor_map.h"
#include "flash_attn.h"

namespace flash_attn {

// A tensor of 16-bit elements [batch][head][row][column], and the box of one row-by-column panel
// that a copy takes from it. Elements outside the tensor are copied as zeros.
struct TensorShape {
  const void *data;
  int64_t columns;
  int64_t rows;
  int64_t heads;
  int64_t batches;
  int64_t row_stride;    // in bytes, like the other strides; ignored for a dimension of size 1
  int64_t head_stride;
  int64_t batch_stride;
  int32_t box_columns;   // 16-byte chunks of box_columns * 2 bytes are swizzled
  int32_t box_rows;
};

flash_attn_status encode_tensor_map(TensorMap &map, const TensorShape &shape);

// Strides between rows, heads and batches. A dimension of size 1 never uses its stride, which may
// be any value. A tensor map still requires a multiple of 16 below 2^40, so it gets the stride of
// a contiguous tensor.
inline std::array<uint64_t, 3> tensor_strides(const TensorShape &shape) {
  constexpr int64_t kMost = (int64_t{1} << 40) - 16;
  const int64_t sizes[3] = {shape.rows, shape.heads, shape.batches};
  const int64_t given[3] = {shape.row_stride, shape.head_stride, shape.batch_stride};
  std::array<uint64_t, 3> strides;
  int64_t extent = shape.columns * 2;
  for (size_t i = 0; i < strides.size(); i++) {
    const int64_t stride = sizes[i] > 1 ? given[i] : extent;
    strides[i] = static_cast<uint64_t>(stride);
    // Neither factor exceeds 2^40; their product may exceed 2^63.
    const bool fits = stride <= kMost / std::max<int64_t>(sizes[i], 1);
    extent = fits ? std::max(extent, stride * sizes[i]) : kMost;
  }
  return strides;
}

}  // namespace flash_attn

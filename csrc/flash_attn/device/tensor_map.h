// The description of a tensor for TMA: opaque to kernels, written by the host.
#pragma once

#include <cstdint>

#include "flash_attn.h"

namespace flash_attn {

struct alignas(64) TensorMap {
  uint64_t opaque[16];
};

/// A tensor of 16-bit elements [batch][head][row][column], and the box of one row-by-column panel
/// that a copy takes from it. Elements outside the tensor are copied as zeros.
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

}  // namespace flash_attn

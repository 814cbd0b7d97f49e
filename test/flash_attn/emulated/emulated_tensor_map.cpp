#include <cstring>

#include "host/tensor_strides.h"
#include "sm90.h"

namespace flash_attn {

flash_attn_status encode_tensor_map(TensorMap &map, const TensorShape &shape) {
  // Conditions that cuTensorMapEncodeTiled rejects.
  const auto strides = tensor_strides(shape);
  const int64_t sizes[3] = {shape.rows, shape.heads, shape.batches};
  for (size_t i = 0; i < strides.size(); i++) {
    if (sizes[i] < 1 || sizes[i] > (int64_t{1} << 32)) return FLASH_ATTN_TENSOR_MAP_FAILED;
    if (strides[i] == 0 || strides[i] % 16 != 0 || strides[i] >= uint64_t{1} << 40) {
      return FLASH_ATTN_TENSOR_MAP_FAILED;
    }
  }
  const bool box_fits =
      shape.box_rows >= 1 && shape.box_rows <= 256 && shape.box_columns * 2 <= 128;
  if (!box_fits || reinterpret_cast<uintptr_t>(shape.data) % 16 != 0) {
    return FLASH_ATTN_TENSOR_MAP_FAILED;
  }
  const emulator::sm90::TensorBox box = {
      static_cast<const char *>(shape.data),
      {shape.columns, shape.rows, shape.heads, shape.batches},
      {2, static_cast<int64_t>(strides[0]), static_cast<int64_t>(strides[1]),
       static_cast<int64_t>(strides[2])},
      {shape.box_columns, shape.box_rows},
      shape.box_columns * 2};
  std::memcpy(&map, &box, sizeof box);
  return FLASH_ATTN_OK;
}

}  // namespace flash_attn

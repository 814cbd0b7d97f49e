#include <cstdlib>
#include <cstring>

#include "host/tensor_strides.h"
#include "sm90.h"

namespace flash_attn {

flash_attn_status encode_tensor_map(TensorMap &map, const TensorShape &shape) {
  // A driver that rejects every description.
  if (std::getenv("FORGE_EMULATED_TENSOR_MAPS_FAIL")) return FLASH_ATTN_TENSOR_MAP_FAILED;
  // Conditions of cuTensorMapEncodeTiled. Drivers accept a stride of zero, but its documentation
  // requires rows that do not overlap.
  const auto strides = tensor_strides(shape);
  const int64_t sizes[4] = {shape.columns, shape.rows, shape.heads, shape.batches};
  for (const int64_t size : sizes) {
    if (size < 1 || size > int64_t{1} << 32) return FLASH_ATTN_TENSOR_MAP_FAILED;
  }
  for (const uint64_t stride : strides) {
    if (stride == 0 || stride % 16 != 0 || stride >= uint64_t{1} << 40) {
      return FLASH_ATTN_TENSOR_MAP_FAILED;
    }
  }
  const bool is_swizzle_wide = shape.box_columns == 64 || shape.box_columns == 32;
  const bool box_fits = shape.box_rows >= 1 && shape.box_rows <= 256 && is_swizzle_wide;
  const auto address = reinterpret_cast<uintptr_t>(shape.data);
  if (!box_fits || address == 0 || address % 16 != 0) return FLASH_ATTN_TENSOR_MAP_FAILED;
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

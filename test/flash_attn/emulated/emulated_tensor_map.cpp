#include <cstdlib>
#include <cstring>

#include "host/tensor_strides.h"
#include "sm90.h"

namespace flash_attn {

flash_attn_status encode_tensor_map(TensorMap &map, const TensorShape &shape) {
  // A driver that rejects every description.
  if (std::getenv("FORGE_EMULATED_TENSOR_MAPS_FAIL")) return FLASH_ATTN_TENSOR_MAP_FAILED;
  const auto strides = tensor_strides(shape);
  emulator::sm90::TensorBox box;
  const bool is_valid = emulator::sm90::describe_box(
      box, shape.data,
      {static_cast<uint64_t>(shape.columns), static_cast<uint64_t>(shape.rows),
       static_cast<uint64_t>(shape.heads), static_cast<uint64_t>(shape.batches)},
      {strides[0], strides[1], strides[2]}, shape.box_columns, shape.box_rows);
  if (!is_valid) return FLASH_ATTN_TENSOR_MAP_FAILED;
  std::memcpy(&map, &box, sizeof box);
  return FLASH_ATTN_OK;
}

}  // namespace flash_attn

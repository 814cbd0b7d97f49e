#include "host/runtime.h"

namespace flash_attn {

int32_t emulated_capability = 80;

flash_attn_status query_device(Device &device) {
  device = {emulated_capability / 10, emulated_capability % 10, 4, 1 << 20};
  if (emulated_capability == 0) return FLASH_ATTN_NO_DEVICE;
  return device.major >= 8 ? FLASH_ATTN_OK : FLASH_ATTN_UNSUPPORTED_DEVICE;
}

}  // namespace flash_attn

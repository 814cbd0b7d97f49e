#include "host/runtime.h"

#include "emulated_stream.h"

namespace flash_attn {

int32_t emulated_capability = 80;
std::atomic<int32_t> emulated_launches = 0, emulated_refusal = 0;

flash_attn_status query_device(Device &device) {
  const int32_t told = driver_capability();
  const int32_t capability = told != 0 ? told : emulated_capability;
  device = {.major = capability / 10,
            .minor = capability % 10,
            .multiprocessors = 4,
            .l2_bytes = 1 << 20,
            .shared_bytes = 228 << 10,
            .dependent_launches = capability >= 90};
  if (capability == 0) return FLASH_ATTN_NO_DEVICE;
  return device.major >= 8 ? FLASH_ATTN_OK : FLASH_ATTN_UNSUPPORTED_DEVICE;
}

flash_attn_status clear_memory(void *memory, size_t bytes, void *stream) {
  clear_on_stream(stream, memory, bytes);
  return FLASH_ATTN_OK;
}

}  // namespace flash_attn

// Starts counting launches, of which number `refused` fails. Returns those since the last call.
extern "C" __attribute__((visibility("default"))) int32_t
flash_attn_emulated_launches(int32_t refused) {
  flash_attn::emulated_refusal = refused;
  return flash_attn::emulated_launches.exchange(0);
}

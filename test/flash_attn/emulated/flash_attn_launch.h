// Kernel launches on the emulator.
#pragma once

#include <atomic>
#include <cstdint>

#include "emulated_stream.h"
#include "flash_attn.h"
#include "host/launch_shape.h"

namespace flash_attn {

// Maximum shared memory per block, from SM80 on and on SM90.
inline constexpr int32_t kLargestSharedMemory = 227 * 1024;

// The number of launches so far, and of the one that is refused; 0 for none.
extern std::atomic<int32_t> emulated_launches, emulated_refusal;

template <class Args>
flash_attn_status launch(void (*kernel)(Args), const LaunchShape &shape, void *stream,
                         const Args &args) {
  if (shape.shared_bytes > kLargestSharedMemory || shape.y > 65535 || shape.z > 65535 ||
      shape.x < 1 || shape.y < 1 || shape.z < 1) {
    return FLASH_ATTN_LAUNCH_FAILED;
  }
  if (++emulated_launches == emulated_refusal) return FLASH_ATTN_LAUNCH_FAILED;
  struct Work {
    void (*kernel)(Args);
    Args args;
  };
  run_kernel_on_stream(stream, shape, new Work{kernel, args},
                       [](const void *data) {
                         const auto &work = *static_cast<const Work *>(data);
                         work.kernel(work.args);
                       },
                       [](const void *data) { delete static_cast<const Work *>(data); });
  return FLASH_ATTN_OK;
}

// The compute capability reported by the emulated device without a driver, such as 80; 0 for no
// device.
extern int32_t emulated_capability;

}  // namespace flash_attn

// Emulated kernels run on a stream of the stand-in for NVIDIA's driver (test/emulator/fake_driver)
// if the process has loaded it, else immediately.
#pragma once

#include <cstddef>
#include <cstdint>

#include "host/launch_shape.h"

namespace flash_attn {

// Runs a kernel in stream order; without a stream, immediately. `thread` runs as every thread, and
// `destroy` when the kernel cannot run again.
void run_kernel_on_stream(void *stream, const LaunchShape &shape, const void *data,
                          void (*thread)(const void *data), void (*destroy)(const void *data));
// Sets memory to zero likewise.
void clear_on_stream(void *stream, void *memory, size_t bytes);

// The compute capability of the calling thread's current device, such as 80; 0 without a driver.
int32_t driver_capability();

}  // namespace flash_attn

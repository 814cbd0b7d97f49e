// Emulated kernels run on a stream of the stand-in for NVIDIA's driver (test/emulator/fake_driver)
// if the process has loaded it, else immediately.
#pragma once

#include <cstdint>
#include <functional>

namespace flash_attn {

// Runs `work` in stream order; without a stream, immediately.
void run_on_stream(void *stream, std::function<void()> work);

// The compute capability of the calling thread's current device, such as 80; 0 without a driver.
int32_t driver_capability();

}  // namespace flash_attn

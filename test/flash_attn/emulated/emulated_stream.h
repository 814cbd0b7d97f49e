// Where emulated kernels run: on a stream of the stand-in for NVIDIA's driver
// (test/emulator/fake_driver) where the process has loaded it, else at once.
#pragma once

#include <cstdint>
#include <functional>

namespace flash_attn {

/// Runs `work` when `stream` gets there; without a stream, now.
void run_on_stream(void *stream, std::function<void()> work);

/// The compute capability of the calling thread's current device, such as 80; 0 where there is no
/// driver.
int32_t driver_capability();

}  // namespace flash_attn

// The CUDA functions that the host needs. An emulator implements the same functions on a CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "flash_attn.h"

#ifdef FLASH_ATTN_EMULATED
#include "flash_attn_launch.h"
#else
#include "host/cuda_launch.h"
#endif

namespace flash_attn {

// The calling thread's current device.
struct Device {
  int32_t major;
  int32_t minor;
  int32_t multiprocessors;
  int64_t l2_bytes;
  int64_t shared_bytes;     // of a multiprocessor
  bool dependent_launches;  // kernels may begin while the previous one runs, in graphs, too
};

flash_attn_status query_device(Device &device);

// Zeroes device memory in stream order.
flash_attn_status clear_memory(void *memory, size_t bytes, void *stream);

}  // namespace flash_attn

// Kernel declarations, thread indices and shared memory on a GPU.
#pragma once

#include "types.h"

#define FA_KERNEL __global__ void
#define FA_DEVICE __device__ __forceinline__
#define FA_LAUNCH_BOUNDS(threads, blocks) __launch_bounds__(threads, blocks)
#define FA_GRID_CONSTANT const __grid_constant__

namespace flash_attn {

FA_DEVICE int thread_index() { return threadIdx.x; }
FA_DEVICE int block_x() { return blockIdx.x; }
FA_DEVICE int block_y() { return blockIdx.y; }
FA_DEVICE int block_z() { return blockIdx.z; }
FA_DEVICE int grid_x() { return gridDim.x; }

// Waits until all threads of the block have arrived; their writes are then visible to all.
FA_DEVICE void block_barrier() { __syncthreads(); }

// The shared memory given at launch, 1024-byte aligned as swizzled TMA tiles need it.
FA_DEVICE char *dynamic_shared() {
  extern __shared__ __align__(1024) char shared_memory[];
  return shared_memory;
}

// The shared-memory address as PTX uses it.
FA_DEVICE uint32_t shared_address(const void *pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

FA_DEVICE float shuffle_xor(float value, int lanes) {
  return __shfl_xor_sync(0xffffffffu, value, lanes);
}

FA_DEVICE uint32_t shuffle_xor(uint32_t value, int lanes) {
  return __shfl_xor_sync(0xffffffffu, value, lanes);
}

// Returns lane 0's value.
FA_DEVICE int from_first_lane(int value) { return __shfl_sync(0xffffffffu, value, 0); }

// True in all lanes if `value` is true in any.
FA_DEVICE bool any_lane(bool value) { return __any_sync(0xffffffffu, value) != 0; }

// Declares a value to be the same in all lanes, so that branches on it do not diverge.
FA_DEVICE int warp_uniform(int value) { return from_first_lane(value); }

// Lets the next kernel begin while this one runs, if it was launched to do so: it then waits where
// it needs this one's results. From SM90 on; nothing on other devices.
FA_DEVICE void allow_next_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits for the previous kernel's results. Every thread of a dependent kernel must call it.
FA_DEVICE void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Adds to a number in global memory and returns the number before; not ordered with other
// accesses.
FA_DEVICE int fetch_add(int *number, int value) { return atomicAdd(number, value); }

}  // namespace flash_attn

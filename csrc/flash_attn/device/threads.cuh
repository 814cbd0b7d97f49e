// What kernels are declared with, threads and their shared memory on a GPU.
#pragma once

#include <cstdint>

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

/// All threads of the block have come here, and see what the others wrote to memory.
FA_DEVICE void block_barrier() { __syncthreads(); }

/// The shared memory given at launch, 1024-byte aligned as swizzled TMA tiles need it.
FA_DEVICE char *dynamic_shared() {
  extern __shared__ __align__(1024) char shared_memory[];
  return shared_memory;
}

/// The address of shared memory as PTX counts it.
FA_DEVICE uint32_t shared_address(const void *pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

FA_DEVICE float shuffle_xor(float value, int lanes) {
  return __shfl_xor_sync(0xffffffffu, value, lanes);
}

FA_DEVICE uint32_t shuffle_xor(uint32_t value, int lanes) {
  return __shfl_xor_sync(0xffffffffu, value, lanes);
}

/// A value that is the same in all lanes, so that branches on it are known not to diverge.
FA_DEVICE int warp_uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

}  // namespace flash_attn

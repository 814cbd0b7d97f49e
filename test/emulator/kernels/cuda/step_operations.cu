// An operation of step_kernel for its test: each number depends on all numbers of the one before.

#include "prelude.cuh"

KERNEL sum_of_all(u32* out, const u32* in, u32 n) {
  wait_for_previous_kernel();
  u32 sum = threadIdx.x + 1;
  for (u32 i = 0; i < n; ++i) sum += in[i];
  // A barrier of the operation's threads alone.
  __syncthreads();
  const u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[block * blockDim.x + threadIdx.x] = sum * (block + 1);
}

INSTANCE(sum_of_all)

// Reads memory and keeps nothing, to measure the bandwidth that any kernel can reach.
//
//   data [n] of 16 bytes; grid: any number of blocks; block 256
//   moves: 16 n bytes, each once; 64 bytes a thread are in flight
//
// The sum is stored if all its bits are set, which keeps the compiler from dropping the loads.

#include "prelude.cuh"

constexpr u32 kLoads = 4;

KERNEL read_memory(u32* unused, const uint4* data, u64 n) {
  wait_for_previous_kernel();
  const u64 stride = u64(gridDim.x) * blockDim.x;
  u32 sum = 0;
  for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += kLoads * stride) {
    uint4 loaded[kLoads];
#pragma unroll
    for (u32 k = 0; k < kLoads; ++k) {
      const u64 at = i + k * stride;
      loaded[k] = load_streaming(data + (at < n ? at : i));
    }
#pragma unroll
    for (u32 k = 0; k < kLoads; ++k) {
      sum ^= loaded[k].x ^ loaded[k].y ^ loaded[k].z ^ loaded[k].w;
    }
  }
  if (sum == 0xffffffffu) *unused = sum;
}

INSTANCE(read_memory)

// Reads memory at the highest speed, to measure it. Buffers and geometry: arguments.h; neighbouring
// threads read neighbouring numbers, four loads of 16 bytes in flight each.

#include "simd.h"

[[kernel, max_total_threads_per_threadgroup(256)]] void read_memory(
    device float* sums [[buffer(0)]], device const float4* memory [[buffer(1)]],
    constant ReadMemoryArgs& args [[buffer(2)]], uint group [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  device const float4* own = memory + ulong(group) * kReadFours + thread_index;
  float4 total = 0.0f;
  for (uint i = 0; i < kReadFours; i += 4 * kReadThreads) {
    const float4 a = own[i], b = own[i + kReadThreads];
    const float4 c = own[i + 2 * kReadThreads], d = own[i + 3 * kReadThreads];
    total = total + (a + b) + (c + d);
  }
  const float sum = simd_sum(total.x + total.y + total.z + total.w) * args.factor;
  if (lane == 0) sums[group * (kReadThreads / kLanes) + simdgroup] = sum;
}

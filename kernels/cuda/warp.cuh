#pragma once

// Sums and maxima over the lanes of a warp and the threads of a block. All threads receive the
// result. The order of addition is fixed, so results do not depend on scheduling.

#include "prelude.cuh"

DEVICE u32 lane_id() { return threadIdx.x % kWarp; }
DEVICE u32 warp_id() { return threadIdx.x / kWarp; }

template <class T>
DEVICE T warp_sum(T x) {
#pragma unroll
  for (u32 bits = 16; bits > 0; bits /= 2) x += __shfl_xor_sync(kAllLanes, x, bits);
  return x;
}

// Sum over this lane and the lanes before it.
template <class T>
DEVICE T warp_prefix_sum(T x) {
#pragma unroll
  for (u32 by = 1; by < kWarp; by *= 2) {
    const T other = __shfl_up_sync(kAllLanes, x, by);
    if (lane_id() >= by) x += other;
  }
  return x;
}

// NaN is ignored, as in fmaxf.
DEVICE float warp_max(float x) {
#pragma unroll
  for (u32 bits = 16; bits > 0; bits /= 2) x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, bits));
  return x;
}

// For blocks of whole warps, at most 32. `partial` is shared memory of 32 elements that must stay
// unused until the next barrier of the block.
template <class T>
DEVICE T block_sum(T x, T* partial) {
  x = warp_sum(x);
  if (lane_id() == 0) partial[warp_id()] = x;
  __syncthreads();
  const u32 n_warps = blockDim.x / kWarp;
  return warp_sum(lane_id() < n_warps ? partial[lane_id()] : T(0));
}

DEVICE float block_max(float x, float* partial) {
  x = warp_max(x);
  if (lane_id() == 0) partial[warp_id()] = x;
  __syncthreads();
  const u32 n_warps = blockDim.x / kWarp;
  return warp_max(lane_id() < n_warps ? partial[lane_id()] : -FORGE_INFINITY);
}

DEVICE u64 warp_largest(u64 x) {
#pragma unroll
  for (u32 bits = 16; bits > 0; bits /= 2) x = max(x, __shfl_xor_sync(kAllLanes, x, bits));
  return x;
}
DEVICE u64 block_largest(u64 x, u64* partial) {
  x = warp_largest(x);
  if (lane_id() == 0) partial[warp_id()] = x;
  __syncthreads();
  const u32 n_warps = blockDim.x / kWarp;
  return warp_largest(lane_id() < n_warps ? partial[lane_id()] : 0);
}

// Sums over the threads of a block up to this one, and over all.
template <class T>
struct PrefixSum {
  T own;  // including this thread
  T all;
};
template <class T>
DEVICE PrefixSum<T> block_prefix_sum(T x, T* partial) {
  const T sum = warp_prefix_sum(x);
  if (lane_id() == kWarp - 1) partial[warp_id()] = sum;
  __syncthreads();
  const u32 n_warps = blockDim.x / kWarp;
  const T warps = warp_prefix_sum(lane_id() < n_warps ? partial[lane_id()] : T(0));
  const T before = __shfl_sync(kAllLanes, warps, (warp_id() + kWarp - 1) % kWarp);
  return {warp_id() == 0 ? sum : before + sum, __shfl_sync(kAllLanes, warps, kWarp - 1)};
}

// True for all threads of the last block that calls this for a counter, of `n_blocks`; resets the
// counter. What the other blocks stored before their calls is then visible.
DEVICE bool is_last_arrival(u32* counter, u32 n_blocks) {
  SHARED(u32, arrived, [1]);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    arrived[0] = atomicAdd(counter, 1u) + 1;
    if (arrived[0] == n_blocks) *counter = 0;
  }
  __syncthreads();
  __threadfence();
  return arrived[0] == n_blocks;
}

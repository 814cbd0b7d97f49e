// Threads, shared memory and arithmetic on a GPU.
#pragma once

#include <cstdint>

#include "device/types.h"

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

/// The same number, about which the compiler knows nothing: what was computed from it before is
/// computed anew where it is needed again, instead of being kept in registers.
FA_DEVICE int forget(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

/// 2^x to 2 units in the last place; 0 for -infinity.
FA_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x to 1 unit in the last place.
FA_DEVICE float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

FA_DEVICE float log2_fast(float x) { return __log2f(x); }

/// Two numbers rounded to T: the first in the lower half.
template <class T>
FA_DEVICE uint32_t pack(float low, float high);

template <>
FA_DEVICE uint32_t pack<f16>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

template <>
FA_DEVICE uint32_t pack<bf16>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

struct alignas(16) Words4 {
  uint32_t word[4];
};

FA_DEVICE void store_16_bytes(void *to, const Words4 &value) {
  const uint32_t(&word)[4] = value.word;
  *static_cast<uint4 *>(to) = make_uint4(word[0], word[1], word[2], word[3]);
}

}  // namespace flash_attn

#pragma once

// Definitions for every kernel: integer names, 16-bit floats, loads, and the macros that differ
// between a GPU and the emulator (test/emulator). No NVIDIA header is needed: NVRTC compiles
// kernels without an include path.

#ifdef FORGE_EMULATOR
#include "device.h"
#else
// An array in shared memory: SHARED(float, partial, [33]);
#define SHARED(Type, name, dimensions) __shared__ __align__(16) Type name dimensions
// The shared memory whose size the launch sets; one name and type per kernel.
#define DYNAMIC_SHARED(Type, name)                         \
  extern __shared__ __align__(128) unsigned char name##_[]; \
  Type* name = reinterpret_cast<Type*>(name##_)
// An instance of a kernel that the library may request. NVRTC compiles the requested instance; the
// emulator and the gates (test/emulator) take every listed instance.
#define INSTANCE(...)
#endif
// A struct that a kernel takes. As an operation of step_kernel it stays where it is: copies would
// take registers.
#ifdef FORGE_STEP
#include "step_place.cuh"
#define ARGUMENT(Type) const Type&
// The first value of numbers that are loaded under a condition, which would else keep their
// registers from one operation to the next. A launched kernel would lose loads before its wait.
#define STEP_ZEROS = {}
#else
#define ARGUMENT(Type) Type
#define STEP_ZEROS
#endif

#include "cuda_arguments.h"

#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define KERNEL __global__ void
// A kernel for blocks of up to 1024 threads, which leaves 64 registers per thread.
#define LARGE_KERNEL __global__ void __launch_bounds__(1024)

using namespace kernel_args;
using namespace cuda_args;
typedef unsigned short u16;
typedef signed char i8;

constexpr u32 kWarp = 32;
constexpr u32 kAllLanes = 0xffffffffu;
#define FORGE_INFINITY __uint_as_float(0x7f800000u)

struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

DEVICE float to_float(float x) { return x; }
DEVICE float to_float(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }

#ifdef FORGE_EMULATOR
DEVICE float to_float(f16 x) { return forge::f16_to_f32(x.bits); }
DEVICE f16 to_f16(float x) { return {forge::f32_to_f16(x)}; }
DEVICE bf16 to_bf16(float x) { return {forge::f32_to_bf16(x)}; }
// Loads data that one block reads once, bypassing the L1 cache.
DEVICE uint4 load_streaming(const void* p) { return *static_cast<const uint4*>(p); }
// Loads that the compiler does not move past a branch, so that they are in flight together with the
// load that decides it.
DEVICE u32 load_now(const u32* p) { return *p; }
DEVICE float load_now(const float* p) { return *p; }
DEVICE float4 load_now(const float4* p) { return *p; }
// Waits until blocks that run have increased a counter to `count`.
DEVICE void await_count(const u32* counter, u32 count) { emulator::await_count(counter, count); }
#else
DEVICE float to_float(f16 x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
}
DEVICE f16 to_f16(float x) {
  f16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}
DEVICE bf16 to_bf16(float x) {
  bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}
DEVICE uint4 load_streaming(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
DEVICE u32 load_now(const u32* p) {
  u32 v;
  asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}
DEVICE float load_now(const float* p) {
  float v;
  asm volatile("ld.volatile.global.f32 %0, [%1];" : "=f"(v) : "l"(p));
  return v;
}
DEVICE float4 load_now(const float4* p) {
  float4 v;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p));
  return v;
}
DEVICE void await_count(const u32* counter, u32 count) {
  while (load_now(counter) < count) {
  }
}
#endif

// Loads a number that no kernel writes: a weight. Such loads may precede wait_for_previous_kernel.
template <class T>
DEVICE T load_constant(const void* p) {
  return __ldg(static_cast<const T*>(p));
}

// Must be called in every kernel. From SM90 on, a kernel may start while the previous one is still
// running (programmatic dependent launch). Until this returns, the kernel must touch no memory but
// weights, and those only by load_streaming and load_constant. It also allows the next kernel to
// start early; that kernel waits here in the same way.
#ifdef FORGE_EMULATOR
DEVICE void wait_for_previous_kernel() { emulator::note_wait(); }
#elif defined(FORGE_STEP)
DEVICE void wait_for_previous_kernel() { await_arrivals(); }
#elif __CUDA_ARCH__ >= 900
DEVICE void wait_for_previous_kernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
#else
DEVICE void wait_for_previous_kernel() {}
#endif

DEVICE void convert(float x, float& out) { out = x; }
DEVICE void convert(float x, f16& out) { out = to_f16(x); }
DEVICE void convert(float x, bf16& out) { out = to_bf16(x); }

// Two 16-bit floats in a word, the first in the low half.
DEVICE u32 pack(f16 low, f16 high) { return low.bits | u32(high.bits) << 16; }
DEVICE u32 pack(bf16 low, bf16 high) { return low.bits | u32(high.bits) << 16; }
DEVICE u32 pack_as(f16, float low, float high) { return pack(to_f16(low), to_f16(high)); }
DEVICE u32 pack_as(bf16, float low, float high) { return pack(to_bf16(low), to_bf16(high)); }
DEVICE float low_as(f16, u32 word) { return to_float(f16{u16(word)}); }
DEVICE float high_as(f16, u32 word) { return to_float(f16{u16(word >> 16)}); }
DEVICE float low_as(bf16, u32 word) { return __uint_as_float(word << 16); }
DEVICE float high_as(bf16, u32 word) { return __uint_as_float(word & 0xffff0000u); }

// The same F16 in both halves of a word.
DEVICE u32 both_halves(f16 x) { return x.bits * 0x10001u; }

DEVICE u32 round_up(u32 n, u32 unit) { return (n + unit - 1) / unit * unit; }
DEVICE u32 word_of(uint4 v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// Converts four unsigned bytes to floats: a byte in the low mantissa bits of 2^23 is 2^23 + byte.
// This takes one byte permutation and one exact subtraction; a conversion instruction would run at
// a quarter of the speed.
DEVICE float4 bytes_to_floats(u32 bytes, float bias = 0.0f) {
  const float base = 8388608.0f + bias;
  return make_float4(__uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7440)) - base,
                     __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7441)) - base,
                     __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7442)) - base,
                     __uint_as_float(__byte_perm(bytes, 0x4b000000u, 0x7443)) - base);
}

// Waits for the previous kernel, then calls compute(row, column) for each number of *n_rows rows of
// `cols` numbers. Grid: (cols / 1024, rows); block 256, four numbers a thread.
template <class Compute>
DEVICE void for_each_number(const u32* n_rows, u32 cols, Compute compute) {
  wait_for_previous_kernel();
  const u32 row = blockIdx.y;
  if (row >= *n_rows) return;
  for (u32 k = 0; k < 4; ++k) {
    const u32 i = blockIdx.x * 1024 + k * blockDim.x + threadIdx.x;
    if (i >= cols) return;
    compute(u64(row), i);
  }
}

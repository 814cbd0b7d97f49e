#pragma once

// The arguments of kernels, declared once for kernels on both devices and for the host.
//
// The scalars of a kernel are a plain struct. KERNEL_ARGUMENTS adds the kernel's buffers:
//
//   struct SoftcapArgs {
//     u32 cols;
//     float cap;
//   };
//   KERNEL_ARGUMENTS(Softcap, softcap, SoftcapArgs,
//                    WRITES(float) out; READS(float) x; READS(u32) n_rows;)
//
//   - On CUDA the kernel `softcap` takes one parameter, a `Softcap`: the buffers as pointers, then
//     the scalars.
//   - On Metal it takes the buffers at the indices 0, 1, ... in the order listed, then SoftcapArgs
//     (setBytes), and KERNEL_ARGUMENTS declares nothing.
//   - The host launches it with Softcap::Buffers and SoftcapArgs (csrc/gpu/kernel_launch.h).
//
// Conventions
//   - Values that change from step to step (row counts, ids, positions, page tables) are read from
//     buffers.
//   - A buffer marked "if has_..." is read only if that field says so; without it, the address is
//     null on CUDA, and any buffer is bound on Metal.
//   - Matrices are row-major F32 unless said otherwise. "rows" of an activation are tokens or
//     outputs; *n_rows of them exist. A grid may have more; the excess does nothing.
//   - The launch geometry of kernels that both devices have is in csrc/gpu/launch_geometry.h.

#if defined(__CUDACC_RTC__) || defined(FORGE_EMULATOR)
#define KERNEL_CONSTANT constexpr kernel_args::u32
#define WRITES(Type) Type*
#define READS(Type) const Type*
#define KERNEL_ARGUMENTS(Name, kernel, Scalars, ...) \
  struct Name##Buffers {                             \
    __VA_ARGS__                                      \
  };                                                 \
  struct Name : Name##Buffers, Scalars {};
#elif defined(__METAL_VERSION__)
#define KERNEL_CONSTANT static constant constexpr uint
#define KERNEL_ARGUMENTS(Name, kernel, Scalars, ...)
#else
#include <cstdint>
#define KERNEL_CONSTANT constexpr kernel_args::u32
// Every buffer is an address of the device.
#define WRITES(Type) Address
#define READS(Type) Address
#define KERNEL_ARGUMENTS(Name, kernel, Scalars, ...) \
  struct Name {                                      \
    static constexpr const char* kName = #kernel;    \
    using Args = Scalars;                            \
    template <class Address>                         \
    struct Buffers {                                 \
      __VA_ARGS__                                    \
    };                                               \
  };
#endif

namespace kernel_args {

typedef unsigned char u8;
typedef unsigned int u32;
typedef int i32;
#ifdef __METAL_VERSION__
typedef ulong u64;
#else
typedef unsigned long long u64;
#endif

}  // namespace kernel_args

#pragma once

// The Metal kernels of kernels/metal, compiled for the CPU (metal/translate.ts), and how to find
// and run them. They run like CUDA kernels (emulator.h): one threadgroup at a time, each thread a
// fiber, threadgroup memory filled with NaN or large numbers before each threadgroup. Products and
// sums are contracted and subnormal floats flushed to zero, as Metal allows.
//
// Link or load the shared library built by `buildMetalEmulator` (metal/build.ts). In addition to
// the errors of emulator.h, threadgroup memory beyond 32 KB is reported by a line on stderr and
// abort().

#include "emulator.h"

namespace emulator {

struct MetalLaunch {
  Dim3 grid;     // threadgroups
  Dim3 threads;  // per threadgroup
  size_t threadgroup_bytes = 0;  // of threadgroup memory at index 0
};

struct MetalKernel {
  std::string name;  // as in arguments.h: "rms_norm", "matvec<FormatQ4_K, 1>"
  std::vector<MetalArgument> arguments;  // by buffer index
  bool takes_threadgroup_memory;         // true if index 0 of threadgroup memory must be set
  std::function<void(void* const* buffers)> thread;

  // Runs the whole grid and returns when it is done. `buffers` has a pointer for every index,
  // including structs passed by value; it must stay valid for the call only.
  void launch(const MetalLaunch& shape, void* const* buffers) const;
  // Bytes of the threadgroup memory that the kernel declares.
  size_t static_threadgroup_bytes() const;
};

// Finds a kernel by its name; null if there is none.
const MetalKernel* find_metal_kernel(const std::string& name);
const std::vector<MetalKernel>& metal_kernels();

// Makes `has_other_matrix_places` true (registration.h).
void use_other_matrix_places();

}  // namespace emulator

#pragma once

// The Metal kernels of kernels/metal, compiled for the CPU (metal/translate.ts): how those who
// launch them find and run them. They run as CUDA kernels do (emulator.h): one threadgroup at a
// time, each thread a fiber, threadgroup memory filled with 0xff (NaN) before each threadgroup.
//
// Link or load the shared library that `buildMetalEmulator` (metal/build.ts) makes. Beside what
// emulator.h lists, a line on stderr and abort() report threadgroup memory beyond 32 KB.

#include "emulator.h"

namespace emulator {

// What a kernel takes at one buffer index.
struct MetalArgument {
  size_t bytes;      // of a struct passed by value (setBytes); 0: a buffer
  size_t alignment;  // of what it points to
};

struct MetalLaunch {
  Dim3 grid;     // threadgroups
  Dim3 threads;  // of a threadgroup
  size_t threadgroup_bytes = 0;  // of threadgroup memory at index 0
};

struct MetalKernel {
  std::string name;  // as arguments.h names it: "rms_norm", "matvec<FormatQ4_K, 1>"
  std::vector<MetalArgument> arguments;  // by buffer index
  bool takes_threadgroup_memory;         // whether index 0 of threadgroup memory must be given
  std::function<void(void* const* buffers)> thread;

  // Runs the whole grid and returns when it is done. `buffers` has a pointer for every index, also
  // where a struct's bytes are given; it must stay valid for the call only.
  void launch(const MetalLaunch& shape, void* const* buffers) const;
};

// Finds a kernel by its name; null when there is none.
const MetalKernel* find_metal_kernel(const std::string& name);
const std::vector<MetalKernel>& metal_kernels();

void register_metal_kernel(MetalKernel kernel);

// Whether lanes hold the numbers of SIMD group matrices where Apple's GPUs have them, or elsewhere,
// as Metal leaves open. False from the start.
bool has_other_matrix_places();
void use_other_matrix_places();

}  // namespace emulator

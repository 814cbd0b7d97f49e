#pragma once

#include <span>

namespace forge {

// A kernel source file, embedded by the build (ffi/build/graph.ts).
struct KernelSource {
  const char* name;  // the file's name, as in "rms_norm.cu"
  const char* text;
};

// All files, including headers.
std::span<const KernelSource> kernel_sources();

// Returns the file called `name`. Throws FORGE_INTERNAL if it is missing.
const KernelSource& kernel_source(const char* name);

}  // namespace forge

#pragma once

#include <span>

namespace forge {

// A file of the kernels, as the build embeds it (ffi/build/graph.ts).
struct KernelSource {
  const char* name;  // the file's name, as in "rms_norm.cu"
  const char* text;
};

// Every file, the headers they include among them.
std::span<const KernelSource> kernel_sources();

// The file called `name`; throws FORGE_INTERNAL when there is none.
const KernelSource& kernel_source(const char* name);

}  // namespace forge

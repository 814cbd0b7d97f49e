#pragma once

#include "../../../../kernels/metal/arguments.h"
#include "../../metal_registry.h"
#include "../operations.h"

namespace kernel_test {

// In place of a missing optional buffer.
constexpr const void* kNothing = nullptr;

// Launches a kernel by its name with its buffers in order, then its struct of scalars. A missing
// optional buffer is replaced by an inaccessible address.
template <class Args, class... Pointers>
void launch_metal(const std::string& name, const emulator::MetalLaunch& shape, const Args& args,
                  Pointers... pointers) {
  const emulator::MetalKernel* kernel = emulator::find_metal_kernel(name);
  if (!kernel) fail_test("there is no kernel %s", name.c_str());
  void* buffers[] = {const_cast<void*>(static_cast<const void*>(pointers))...,
                     const_cast<Args*>(&args)};
  constexpr size_t n = sizeof...(Pointers) + 1;
  if (kernel->arguments.size() != n || kernel->arguments[n - 1].bytes != sizeof(Args)) {
    fail_test("%s takes other parameters", name.c_str());
  }
  for (size_t i = 0; i + 1 < n; ++i) {
    if (kernel->arguments[i].bytes != 0) fail_test("%s takes other parameters", name.c_str());
    if (!buffers[i]) buffers[i] = reinterpret_cast<void*>(4096);
  }
  kernel->launch(shape, buffers);
}

// Rows that a SIMD group of matvec computes together.
u32 simdgroup_rows(const DeviceWeight& weight);
metal_args::MatvecArgs matvec_args(const DeviceWeight& weight, u32 out_stride, u32 split,
                                   const Epilogue& epilogue);

// Groups the experts of the tokens of a list, or of the first tokens without a list.
void launch_moe_group(const MoeGroup& op, const u32* row_list);

}  // namespace kernel_test

#pragma once

// Replaces the launches of a decode step by launches of one kernel whose blocks stay on the device
// (kernels/cuda/step_kernel.cuh).

#include <cstdint>
#include <optional>
#include <vector>

#include "plan_builder.h"

namespace forge::cuda {

// True if steps of a shape are computed by such a kernel.
bool uses_step_kernel(const Device& device, const StepShape& shape);

// The launches of a plan with runs of them replaced.
struct StepKernelPlan {
  std::vector<PlanEntry> entries;
  size_t sampling_begin = 0;
  uint64_t counters = 0;  // u32, all 0 before the first run
};

// The kernel that computes all launches of a plan that it can; null if they are too few, or the
// device cannot run it. It is not loaded until `load`.
const Kernel* step_kernel_of(const LaunchPlan& plan, CudaDevice& device);

// Replaces the launches of a plan by those of its loaded kernel; nothing if none of its blocks fits
// a multiprocessor. counters: their address, or 0 to learn their number.
std::optional<StepKernelPlan> with_step_kernel(const LaunchPlan& plan, const Kernel& kernel,
                                               const Device& device, DevicePointer counters);

}  // namespace forge::cuda

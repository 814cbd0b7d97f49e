#pragma once

// Replaces the launches of a decode step by launches of one kernel whose blocks stay on the device
// (kernels/cuda/step_kernel.cuh).

#include <cstdint>
#include <optional>

#include "plan_builder.h"

namespace forge::cuda {

// True if steps of a shape are computed by such a kernel.
bool uses_step_kernel(const Device& device, const StepShape& shape);

// The kernel that computes all launches of a plan that it can; null if they are too few, or the
// device cannot run it. It is not loaded until `load`.
const Kernel* step_kernel_of(const LaunchPlan& plan, CudaDevice& device);

// Number of u32 by which the blocks of a plan's kernel wait for each other; all 0 before a run.
uint64_t step_kernel_counters(const LaunchPlan& plan);

// Returns a plan in which its loaded kernel takes the place of launches; null if a multiprocessor
// has no room for a block. It has no `operations`, since profiles time single launches.
std::optional<LaunchPlan> with_step_kernel(const LaunchPlan& plan, const Kernel& kernel,
                                           const Device& device, DevicePointer counters);

}  // namespace forge::cuda

// step_kernel in the emulator: the operations are calls of registered kernels (step_twins.h).

#include "step_kernel.cuh"

LARGE_KERNEL step_kernel(StepTable table) {
  wait_for_previous_kernel();
  // No thread is in an operation before all have waited.
  resident_barrier();
  run_step(table, [](u32, const u64* arguments) { emulator::run_operation(arguments); });
}

INSTANCE(step_kernel)

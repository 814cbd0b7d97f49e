// step_kernel in the emulator, in which kernels are compiled once: an operation is a call of the
// registered kernel, whose threads have other positions.

#include "prelude.cuh"

// The functions of kernels/cuda/step_place.cuh.
DEVICE u32 resident_thread() { return emulator::thread_number(); }
DEVICE u32 resident_block() { return emulator::resident_block(); }
DEVICE u32 resident_blocks() { return emulator::resident_blocks(); }
DEVICE void resident_barrier() { emulator::wait_for_resident(); }
DEVICE void enter_operation(const StepOperation& op, u32 operation, u32 number, const u32* awaited,
                            u32 expected) {
  emulator::enter_operation({op.kernel, operation, number, awaited, expected}, op.threads,
                            {op.x, op.y, op.z});
}
DEVICE u32 entered_operation() { return emulator::operation().index; }
DEVICE u32 entered_block() { return emulator::operation().block; }
DEVICE void leave_operations() { emulator::leave_operations(); }
DEVICE void arrive(u32* counter) { emulator::arrive(counter); }

#include "step_kernel.cuh"

LARGE_KERNEL step_kernel(StepTable table) {
  wait_for_previous_kernel();
  // No thread is in an operation before all have waited.
  resident_barrier();
  run_step(table, [](u32, const u64* arguments) { emulator::run_operation(arguments); });
}

INSTANCE(step_kernel)

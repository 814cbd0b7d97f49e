#pragma once

// The functions of kernels/cuda/step_place.cuh for the emulator, in which kernels are compiled
// once: an operation is a call of the registered kernel, whose threads have other positions.

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

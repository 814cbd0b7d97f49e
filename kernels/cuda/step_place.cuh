#pragma once

// The built-in variables and the barrier of the kernels that are operations of step_kernel
// (step_kernel.cuh): those of the launch that an operation stands for. prelude.cuh includes this
// file before any use of them. The emulator has twins (test/emulator/step_kernel.cu).

#define STEP_FUNCTION static __device__ __forceinline__

// The block of an operation that this block computes; changes between barriers of the whole block.
struct StepPlace {
  uint3 block, grid, size;
  unsigned operation, number;
  const unsigned* awaited;  // the counter of arrivals to wait for; null: none
  unsigned expected;
};
__shared__ StepPlace step_place;

STEP_FUNCTION unsigned resident_thread() { return threadIdx.x; }
STEP_FUNCTION unsigned resident_block() { return blockIdx.x; }
STEP_FUNCTION unsigned resident_blocks() { return gridDim.x; }
STEP_FUNCTION void resident_barrier() { __syncthreads(); }

// Begins a block of an operation, which waits for `expected` arrivals at a counter.
template <class StepOperation>
STEP_FUNCTION void enter_operation(const StepOperation& op, unsigned operation, unsigned number,
                                   const unsigned* awaited, unsigned expected) {
  if (resident_thread() == 0) {
    step_place = {{number % op.x, number / op.x % op.y, number / op.x / op.y},
                  {op.x, op.y, op.z}, {op.threads, 1, 1}, operation, number, awaited, expected};
  }
  resident_barrier();
}
STEP_FUNCTION unsigned entered_operation() { return step_place.operation; }
STEP_FUNCTION unsigned entered_block() { return step_place.number; }
// After the last operation, all threads of the block take part in barriers.
STEP_FUNCTION void leave_operations() {
  if (resident_thread() == 0) step_place.size = {blockDim.x, 1, 1};
  resident_barrier();
}

// The first threads of a block compute an operation; the others are at the barrier after it.
STEP_FUNCTION void operation_barrier() {
  asm volatile("bar.sync 1, %0;" ::"r"(step_place.size.x) : "memory");
}

// Adds an arrival; what the block stored before its last barrier is then visible to blocks that
// wait for it.
STEP_FUNCTION void arrive(unsigned* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

// The fence also drops what the multiprocessor's L1 cache holds.
STEP_FUNCTION void await_arrivals() {
  if (step_place.awaited == nullptr) return;
  if (resident_thread() == 0) {
    unsigned arrived;
    do {
      asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
                   : "=r"(arrived)
                   : "l"(step_place.awaited)
                   : "memory");
    } while (arrived < step_place.expected);
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
  }
  operation_barrier();
}

#define blockIdx (step_place.block)
#define gridDim (step_place.grid)
#define blockDim (step_place.size)
#define __syncthreads() operation_barrier()

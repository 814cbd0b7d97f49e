#pragma once

// A step of decoding as one kernel, whose blocks stay on the device: the operations of a table,
// each a launch that the plan would make, by the bodies of the same kernels.
//
// All blocks of the grid are resident at once (a cooperative launch). Each computes its share of
// the blocks of every operation, in the order of operations, and then arrives at the operation's
// counter. Where a launch would wait for the one before (wait_for_previous_kernel), a block waits
// until all blocks that compute the operation before have arrived; since these waited in the same
// way, all earlier operations are complete too. A block that waits is in an operation after those
// that it waits for, and operations before have no block that waits for it: none waits forever.
// Until that wait a product requests its first weights, as with launches that start early.
//
// The last block to leave resets the counters for the next launch.
//
// The source that NVRTC compiles (csrc/cuda/step_kernel.cpp) includes this file with FORGE_STEP,
// then the files of the kernels, and ends with the kernel.

#include "warp.cuh"

#ifndef FORGE_EMULATOR
template <class T>
struct ArgumentType {
  typedef T type;
};
template <class T>
struct ArgumentType<const T&> {
  typedef T type;
};

// Calls the body of a kernel with parameters at addresses of 8 bytes each.
template <auto kernel>
struct Operation;
template <class... Parameters, void (*kernel)(Parameters...)>
struct Operation<kernel> {
  template <class... Done>
  static DEVICE_MEMBER void call(const u64* next, const Done&... done) {
    if constexpr (sizeof...(Done) == sizeof...(Parameters)) {
      kernel(done...);
    } else {
      typedef typename At<sizeof...(Done), Parameters...>::type Next;
      call(next + (sizeof(Next) + 7) / 8, done..., *reinterpret_cast<const Next*>(next));
    }
  }

 private:
  template <u32 n, class First, class... Rest>
  struct At {
    typedef typename At<n - 1, Rest...>::type type;
  };
  template <class First, class... Rest>
  struct At<0, First, Rest...> {
    typedef typename ArgumentType<First>::type type;
  };
};
#endif

DEVICE u32 blocks_of(const StepOperation& op) { return op.x * op.y * op.z; }

// Runs the operations of a table: run(kernel, arguments) calls a kernel's body. What the loop needs
// after a body is in shared memory, so that the body has all registers.
template <class Run>
DEVICE void run_step(const StepTable& table, Run run) {
  const StepOperation* operations = reinterpret_cast<const StepOperation*>(table.words);
  for (u32 i = 0; i < table.n_operations; ++i) {
    for (u32 block = resident_block(); block < blocks_of(operations[i]);
         block += resident_blocks()) {
      // Only the first of its blocks waits.
      const bool waits = i > 0 && block == resident_block();
      const u32 before = waits ? min(blocks_of(operations[i - 1]), resident_blocks()) : 0;
      enter_operation(operations[i], i, block, waits ? table.arrivals + i - 1 : nullptr, before);
      if (resident_thread() < operations[i].threads) {
        run(operations[i].kernel, table.words + operations[i].arguments / 8);
      }
      // Before the barrier, after which the first thread may enter the next operation.
      i = entered_operation();
      block = entered_block();
      // All threads are done with shared memory, and what they stored comes before the arrival.
      resident_barrier();
      if (resident_thread() == 0 && block + resident_blocks() >= blocks_of(operations[i])) {
        arrive(table.arrivals + i);
      }
    }
  }
  leave_operations();
  if (!is_last_arrival(table.arrivals + table.n_operations, resident_blocks())) return;
  for (u32 i = resident_thread(); i < table.n_operations; i += kStepThreads) table.arrivals[i] = 0;
}

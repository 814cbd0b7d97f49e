#pragma once

// The running block: its threads, barriers, warps and shared memory.

#include <cstddef>
#include <cstdint>

#include "registration.h"

namespace emulator {

struct Thread;

struct Position {
  Dim3 thread, block, block_size, grid_size;
  uint32_t lane;
};
// Position of the running thread. Its address stays the same while the thread runs, so the compiler
// may keep it.
[[gnu::const]] const Position& position();

// Waits until every unfinished thread of the block has arrived. `orders_memory`: accesses before it
// happen before those after it.
void wait_for_block(const char* file, int line, bool orders_memory = true);

// A block of an operation of a kernel whose blocks run at once (kernels/cuda/step_kernel.cuh).
struct Operation {
  uint32_t kernel = 0;  // among Launch::operations
  uint32_t index = 0, block = 0;
  const uint32_t* awaited = nullptr;  // the counter of arrivals before it; null: none
  uint32_t expected = 0;
};
uint32_t resident_block();
uint32_t resident_blocks();
// Waits for all threads of the block, those without work in the operation too.
void wait_for_resident();
// All threads enter an operation; the first `threads` of them run it and meet at its barriers.
void enter_operation(const Operation& operation, uint32_t threads, Dim3 grid);
const Operation& operation();
void run_operation(const void* arguments);
void leave_operations();
// Waits for the arrivals before the operation; returns false outside of operations.
bool await_operation();
void arrive(uint32_t* counter);

// Kinds of warp operations; all lanes that meet must perform the same one.
enum class WarpOp { sync, shuffle, ballot, match, reduce, ldmatrix, ldmatrix_trans, mma, wgmma };

// A warp operation: every lane of `mask` passes `argument`; the last to arrive runs `perform` on
// all of them, indexed by lane, and all continue. `orders_memory` has the meaning of __syncwarp.
void collective(uint32_t mask, WarpOp op, void* argument,
                void (*perform)(void* const* arguments, uint32_t mask), const char* file, int line,
                bool orders_memory = false);

// The kind of memory of an address that the running thread accesses; none outside of a kernel.
enum class MemorySpace { none, stack, shared, global };
MemorySpace space_of(const void* address);

// Waits until other blocks have increased a counter to `count`. Fails if that would be blocks that
// run later.
void await_count(const uint32_t* counter, uint32_t count);
// May leave the running thread for other blocks, if all run at once.
void let_others_run();

// Records that the running thread waits for the previous kernel (kernels/cuda/prelude.cuh).
void note_wait();

// Memory of one shared array in this block; `declaration` identifies the array.
void* shared_array(const void* declaration, size_t bytes);
void* dynamic_shared();

// Asynchronous copies of the running thread: issued, grouped, then waited for. Until then the
// destination holds 0xff. If `valid` is false the destination becomes zero.
void copy_async(void* to, const void* from, size_t bytes, bool valid);
void commit_async_copies();
void wait_async_copies(size_t groups_left);

// For other kinds of waiting: the running thread sleeps until another wakes it by its number.
uint32_t thread_number();
void park(const char* reason);
void unpark(uint32_t thread);
// Number of blocks started so far, for state that belongs to a block.
uint64_t block_serial();
size_t dynamic_shared_bytes();
// Sets a function to call when no thread of the block can run; it returns true if it made progress.
void set_idle(bool (*idle)());

}  // namespace emulator

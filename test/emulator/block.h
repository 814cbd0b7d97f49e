#pragma once

// The block that runs: its threads, barriers, warps and shared memory.

#include <cstddef>
#include <cstdint>

#include "emulator.h"

namespace emulator {

struct Thread;

// The thread that runs now.
struct Position {
  Dim3 thread, block, block_size, grid_size;
  uint32_t lane;
};
const Position& position();

// Waits until every thread of the block that has not finished is here.
void wait_for_block(const char* file, int line);

// Names of warp operations: lanes that meet must perform the same.
enum class WarpOp { sync, shuffle, ballot, match, reduce, ldmatrix, ldmatrix_trans, mma, wgmma };

// A warp operation: every lane of `mask` brings `argument`; the last to arrive runs `perform` on
// all of them, indexed by lane, and all continue. `orders_memory` as __syncwarp does.
void collective(uint32_t mask, WarpOp op, void* argument,
                void (*perform)(void* const* arguments, uint32_t mask), const char* file, int line,
                bool orders_memory = false);

// The memory of one shared array in this block; `declaration` tells the arrays apart.
void* shared_array(const void* declaration, size_t bytes);
void* dynamic_shared();

// Asynchronous copies of the running thread: issued, grouped, then waited for. Until then the
// destination holds 0xff. Where `valid` is false the destination becomes zero.
void copy_async(void* to, const void* from, size_t bytes, bool valid);
void commit_async_copies();
void wait_async_copies(size_t groups_left);

// For what waits in other ways: the running thread sleeps until another wakes it by its number.
uint32_t thread_number();
void park(const char* reason);
void unpark(uint32_t thread);
// Counts the blocks that began, for those who keep state of a block.
uint64_t block_serial();
size_t dynamic_shared_bytes();
// Called when no thread of the block can run, for what goes on by itself; whether it did something.
void set_idle(bool (*idle)());

}  // namespace emulator

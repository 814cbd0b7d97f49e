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
enum class WarpOp { sync, shuffle, ballot, match, reduce, ldmatrix, ldmatrix_trans, mma };

// A warp operation: every lane of `mask` brings `argument`; the last to arrive runs `perform` on all
// of them, indexed by lane, and all continue. `orders_memory` as __syncwarp does.
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

}  // namespace emulator

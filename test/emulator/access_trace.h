#pragma once

// Counts the memory transactions that the accesses of each warp need on a GPU, in builds that call
// out for every access (mode "traced" of build.ts): FORGE_EMULATOR_TRACE=FILE. After each kernel a
// JSON object is appended to the file, with sums for global loads, global stores and shared memory:
//
//   requests  warp instructions
//   sectors, ideal_sectors  32-byte sectors touched, and how many the distinct bytes would fill
//   cycles, ideal_cycles  accesses to the 128 bytes of banks, as caused by conflicts and without
//
// and `l2_bytes`, the sectors that global loads miss in an L1 of 128 KB, which all blocks use in
// turn.

#include <cstddef>
#include <string>

namespace emulator {

enum class Access { load, store };

// Records one access of the running thread, by the address of its instruction.
void trace_access(const void* instruction, Access access, const void* address, size_t bytes);
// Sets the test for global memory, without which nothing global is recorded.
void set_traced_memory(bool (*holds)(const void* address));
// True in builds that call out for every access.
bool is_traced_build();
// Called after each block and each kernel.
void end_traced_block();
void end_traced_kernel(const std::string& kernel);

}  // namespace emulator

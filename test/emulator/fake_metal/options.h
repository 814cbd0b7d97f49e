#pragma once

// Properties and injected failures of the stand-in for Metal, from the variable FORGE_FAKE_METAL,
// such as "memory_mib=256,fail_allocation=3".

#include <cstdint>

namespace fake_metal {

struct Options {
  uint64_t devices = 1;          // 0: none
  uint64_t family = 1009;        // the newest GPU family: 1007 is Apple7
  uint64_t memory_mib = 8192;    // recommended working set
  uint64_t taken_mib = 0;        // allocated by other parts of the process
  uint64_t buffer_kib = 4 << 20;  // longest buffer
  uint64_t max_threads = 1024;   // per threadgroup
  uint64_t matrix_places = 0;    // 1: lanes hold matrices in another layout than on Apple's GPUs
  uint64_t residency = 1;        // 0: there are no residency sets, as before macOS 15
  uint64_t fail_allocation = 0;  // the n-th buffer, from 1, cannot be allocated
  uint64_t fail_compile = 0;     // the n-th library does not compile
  uint64_t fail_pipeline = 0;    // the n-th pipeline cannot be created
  uint64_t fail_commands = 0;    // the n-th command buffer with kernels ends in an error
  uint64_t fail_code = 3;        // of this error: 3 is a page fault, 8 out of memory
  uint64_t slow_exit_ms = 0;     // time that the process takes to end after its exit handlers
  uint64_t trace = 0;            // 1: prints each kernel's name on stderr at its first run
                                 // 2: prints each launch and each command buffer
};

// Read once; an unknown name aborts.
const Options& options();

// Prints the program's mistake, and aborts.
[[noreturn]] void misuse(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace fake_metal

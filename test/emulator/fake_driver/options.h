#pragma once

// What the stand-in for the driver pretends, and which failures it injects: the variable
// FORGE_FAKE_CUDA, as in "memory_mib=256,fail_allocation=3".

#include <cstdint>

namespace fake_driver {

struct Options {
  uint64_t devices = 1;
  uint64_t memory_mib = 8192;  // of each device
  uint64_t architecture = 80;
  uint64_t version = 13000;     // of CUDA, as cuDriverGetVersion tells it
  uint64_t fail_init = 0;       // what cuInit returns
  uint64_t fail_allocation = 0;  // the n-th allocation of device memory, from 1, is refused
  uint64_t fail_launch = 0;      // the n-th launch is refused
  uint64_t illegal_address = 0;  // the n-th kernel that runs ends in an illegal access
  uint64_t early_only = 0;  // 1: a kernel behind a kernel must be launched so that it may start early
  uint64_t lost = 0;             // after the n-th kernel the device is gone
  uint64_t fail_capture = 0;     // the n-th launch into a capture is refused
  uint64_t fail_stream = 0;      // the n-th stream is refused
  uint64_t strict_exit = 0;      // 1: a context that is still retained when the process ends aborts it

  // Of a block that asks for more than the default. Of those before SM90, SM86 has the least.
  uint64_t max_shared_bytes() const { return (architecture >= 90 ? 227 : 99) * 1024; }
};

// Read once; an unknown name aborts.
const Options& options();

// Prints what the program did wrong, and aborts.
[[noreturn]] void misuse(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace fake_driver

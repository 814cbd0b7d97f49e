#pragma once

// Properties and injected failures of the stand-in for the driver, from the variable
// FORGE_FAKE_CUDA, such as "memory_mib=256,fail_allocation=3".

#include <cstdint>

namespace fake_driver {

struct Options {
  uint64_t devices = 1;
  uint64_t memory_mib = 8192;  // per device
  uint64_t architecture = 80;
  uint64_t multiprocessors = 2;  // few, so that grids are small
  uint64_t l2_kib = 256;
  uint64_t version = 13000;     // CUDA version returned by cuDriverGetVersion
  uint64_t fail_init = 0;       // result of cuInit
  uint64_t fail_allocation = 0;  // the n-th allocation of device memory, from 1, fails
  uint64_t fail_launch = 0;      // the n-th launch fails
  uint64_t illegal_address = 0;  // the n-th kernel that runs ends in an illegal access
  uint64_t refuse_tensor_maps = 0;  // 1: cuTensorMapEncodeTiled fails
  uint64_t early_only = 0;  // 1: a kernel after a kernel must be launched with early start allowed
  uint64_t lost = 0;             // after the n-th kernel the device is lost
  uint64_t lost_in_turn = 0;     // 1: device i is lost with the i-th result that ends a context
  uint64_t fail_capture = 0;     // the n-th launch into a capture finds no memory
  uint64_t most_graphs = 0;      // aborts if more graphs exist; 0: no limit
  uint64_t load_once = 0;        // 1: aborts if a context loads the same kernel twice
  uint64_t fail_stream = 0;      // creating the n-th stream fails
  uint64_t failing_device = ~uint64_t{0};  // failures from fail_allocation on, on this device only
  uint64_t strict_exit = 0;      // 1: aborts if a context is still retained when the process ends

  // Opt-in maximum per block. Before SM90, SM86 has the smallest.
  uint64_t max_shared_bytes() const { return (architecture >= 90 ? 227 : 99) * 1024; }
};

// Read once; an unknown name aborts.
const Options& options();

// Prints the program's mistake, and aborts.
[[noreturn]] void misuse(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace fake_driver

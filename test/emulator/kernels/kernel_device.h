#pragma once

// Where the tests' kernels run: in the emulator (emulated_device.cpp), or on a GPU by way of the
// driver (cuda_device.cpp).

#include <string>
#include <utility>
#include <vector>

#include "../emulator.h"

namespace kernel_test {

// Memory that kernels and the tests themselves read and write, at a multiple of 256.
void* allocate(size_t bytes);
void release(void* memory);

// Memory of which only what is touched exists, zeros until written: far more than the machine has.
// Null where the device has no such memory.
void* reserve(size_t bytes);

// Runs a kernel, as its INSTANCE line names it, to its end. Throws when there is none, when its
// parameters have other sizes, or when it fails.
void run_kernel(const std::string& name, const emulator::Launch& shape,
                const std::vector<size_t>& param_bytes, void** params);

// Makes all kernels ready; without it, each is when it is first run.
void prepare_kernels();

// The kernels' names with their symbols.
std::vector<std::pair<std::string, std::string>> kernel_names();

}  // namespace kernel_test

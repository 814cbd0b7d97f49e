#pragma once

// The device of the tests' kernels: the emulator (emulated_device.cpp), or a GPU through the driver
// (cuda_device.cpp).

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "../emulator.h"

namespace kernel_test {

// Allocates memory for kernels and tests, aligned to 256 bytes.
void* allocate(size_t bytes);
void release(void* memory);

// Reserves sparse memory, zeros until written, possibly far more than the machine has. Null if the
// device does not support it.
void* reserve(size_t bytes);

// Runs a kernel, named as in its INSTANCE line, and waits for it. Throws if it is unknown, if its
// parameters have other sizes, or if it fails.
void run_kernel(const std::string& name, const emulator::Launch& shape,
                const std::vector<size_t>& param_bytes, void** params);

// Runs step_kernel, whose operations are launches of these kernels. False on a GPU, for which the
// library writes its source (csrc/cuda/step_kernel.cpp).
bool run_step_kernel(const std::vector<std::string>& operations, const emulator::Launch& shape,
                     const std::vector<size_t>& param_bytes, void** params);

// A tensor as the copy engine of SM90 reads it (csrc/cuda/driver_api.h).
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};
// Describes a tensor of 16-bit numbers, its innermost size first and strides in bytes, in boxes of
// 64 columns and `box_rows` rows. False if the device is not of SM90.
bool describe_tensor(TensorMap& map, const void* data, const uint64_t (&sizes)[4],
                     const uint64_t (&strides)[3], uint32_t box_rows);

// Compiles all kernels now; by default each is compiled at its first run.
void prepare_kernels();

// Returns the kernels' names with their symbols.
std::vector<std::pair<std::string, std::string>> kernel_names();

}  // namespace kernel_test

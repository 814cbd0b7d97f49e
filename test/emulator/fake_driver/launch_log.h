#pragma once

// A dry run: FORGE_FAKE_CUDA_LAUNCHES=FILE. Launches are written to the file, one JSON object per
// line, instead of run. Device memory has addresses but no contents, and results are zeros, so that
// the plans of models larger than this machine can be read. Lines: a kernel, with the index of its
// device and its parameters as hexadecimal bytes; a library's host function, by the library's file
// name; a synchronization.

#include <string>
#include <vector>

#include "../emulator.h"

namespace fake_driver {

bool is_dry_run();

void log_kernel(size_t device, const emulator::Kernel& kernel, const emulator::Launch& launch,
                bool is_early, const std::vector<std::string>& arguments);
void log_host_function(const void* function);
void log_synchronization();

}  // namespace fake_driver

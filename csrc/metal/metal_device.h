#pragma once

#include "kernels.h"
#include "weight_windows.h"

namespace forge::metal {

// The open device, shared by its weights, caches and steps.
struct MetalDevice {
  explicit MetalDevice(uint32_t n_host_threads);

  // Shared by everything that is allocated on the device.
  const std::shared_ptr<const Device>& handle() const { return device; }
  // Allocates a buffer of a step, for the GPU alone.
  Buffer allocate(uint64_t bytes) const {
    return Buffer(device, bytes, Purpose::activations, Storage::gpu_only);
  }
  // Tables of the IQ weight types; copied at the first call.
  Place codebooks();

  std::shared_ptr<const Device> device;
  Kernels kernels;
  WeightWindows windows;
  uint32_t n_threads;            // for compiling kernels and copying weights
  bool has_known_matrix_places;  // true if attention may address single elements of matrices
  Buffer filler;                 // bound by launches for a missing buffer

 private:
  Buffer codebooks_;
};

}  // namespace forge::metal

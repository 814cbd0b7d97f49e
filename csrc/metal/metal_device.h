#pragma once

#include "kernels.h"
#include "weight_windows.h"

namespace forge::metal {

// What the weights, caches and steps of one open device share.
struct MetalDevice {
  explicit MetalDevice(uint32_t n_host_threads);

  // The tables of the weight types that look their values up; copied at the first call.
  Place codebooks();

  std::shared_ptr<const Device> device;
  Kernels kernels;
  WeightWindows windows;
  uint32_t n_threads;  // that compile kernels and copy weights
  bool has_known_matrix_places;  // whether attention may look into matrices (matrix_places.h)
  Buffer filler;       // what launches bind where they have no buffer

 private:
  Buffer codebooks_;
};

}  // namespace forge::metal

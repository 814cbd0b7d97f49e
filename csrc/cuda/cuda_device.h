#pragma once

#include "kernels.h"

namespace forge::cuda {

// What the weights, caches and steps of one open device share.
struct CudaDevice {
  CudaDevice(int index, uint32_t n_host_threads)
      : state(std::make_shared<DeviceState>(index)),
        kernels(state, n_host_threads),
        n_threads(n_host_threads) {}

  const Device& device() const { return state->device; }
  // The tables of the weight types that look their values up; copied at the first call.
  DevicePointer codebooks();

  std::shared_ptr<DeviceState> state;
  Kernels kernels;
  uint32_t n_threads;  // that compile kernels and copy weights

 private:
  DeviceBuffer codebooks_;
};

}  // namespace forge::cuda

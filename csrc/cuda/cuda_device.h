#pragma once

#include <optional>

#include "cublaslt.h"
#include "flash_library.h"
#include "kernels.h"

namespace forge::cuda {

// What the weights, caches and steps of one open device share.
struct CudaDevice {
  CudaDevice(int index, uint32_t n_host_threads)
      : state(std::make_shared<DeviceState>(index)),
        kernels(state, n_host_threads),
        n_threads(n_host_threads) {}

  ~CudaDevice();

  const Device& device() const { return state->device; }
  // The tables of the weight types that look their values up; copied at the first call.
  DevicePointer codebooks();
  // libflash_attn, or why there is none; looked for at the first call.
  const FlashLibrary& flash();
  // cuBLASLt, likewise.
  CublasLt& cublaslt();

  std::shared_ptr<DeviceState> state;
  Kernels kernels;
  uint32_t n_threads;  // that compile kernels and copy weights
  std::atomic<uint32_t> attention = FORGE_ATTENTION_AUTO;  // of steps that are compiled from now on

 private:
  DeviceBuffer codebooks_;
  std::mutex libraries_mutex_;
  std::optional<FlashLibrary> flash_;
  std::optional<CublasLt> cublaslt_;
};

}  // namespace forge::cuda

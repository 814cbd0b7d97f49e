#pragma once

#include <optional>

#include "cublaslt.h"
#include "flash_library.h"
#include "kernels.h"
#include "nccl.h"

namespace forge::cuda {

// An open device, shared by its weights, caches and steps.
struct CudaDevice {
  CudaDevice(int index, uint32_t n_host_threads)
      : state(std::make_shared<DeviceState>(index)),
        kernels(state, n_host_threads),
        n_threads(n_host_threads) {}

  ~CudaDevice();

  const Device& device() const { return state->device; }
  // Shared by everything that is allocated on the device.
  const std::shared_ptr<DeviceState>& handle() const { return state; }
  // Allocates a buffer of a step.
  DeviceBuffer allocate(uint64_t bytes) const {
    return DeviceBuffer(state, bytes, Purpose::activations);
  }
  // Tables of the IQ weight types; copied at the first call.
  DevicePointer codebooks();
  // libflash_attn, or the reason it is missing; opened at the first call.
  const FlashLibrary& flash();
  // cuBLASLt, likewise.
  CublasLt& cublaslt();
  // True if kernels may use wgmma and tensor maps: on SM90 itself, from CUDA 12 on.
  bool multiplies_by_wgmma();

  std::shared_ptr<DeviceState> state;
  Kernels kernels;
  uint32_t n_threads;  // for compiling kernels and copying weights
  std::atomic<uint32_t> attention = FORGE_ATTENTION_AUTO;  // for steps compiled later
  NcclLinks links;                                         // likewise

 private:
  DeviceBuffer codebooks_;
  std::mutex libraries_mutex_;
  std::optional<FlashLibrary> flash_;
  std::optional<CublasLt> cublaslt_;
};

}  // namespace forge::cuda

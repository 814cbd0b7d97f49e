#include "cuda_device.h"

#include "../gpu/weight_format.h"

namespace forge::cuda {

DevicePointer CudaDevice::codebooks() {
  if (codebooks_) return codebooks_.at();
  const std::vector<uint8_t> bytes = codebook_bytes();
  const DeviceScope scope(device());
  DeviceBuffer memory(state, bytes.size(), Purpose::weights);
  device().check(
      device().api().copy_to_device(memory.at(), bytes.data(), bytes.size(), device().stream()),
      "copying the tables of IQ types");
  device().synchronize("copying the tables of IQ types");
  codebooks_ = std::move(memory);
  return codebooks_.at();
}

CudaDevice::~CudaDevice() {
  const DeviceScope scope(device());
  cublaslt_.reset();
}

CublasLt& CudaDevice::cublaslt() {
  const std::lock_guard lock(libraries_mutex_);
  if (!cublaslt_) {
    const DeviceScope scope(device());
    cublaslt_.emplace(device().driver().version());
  }
  return *cublaslt_;
}

bool CudaDevice::multiplies_by_wgmma() {
  return device().properties().architecture == 90 && device().api().encode_tensor_map &&
         kernels.compiles_wgmma();
}

const FlashLibrary& CudaDevice::flash() {
  const std::lock_guard lock(libraries_mutex_);
  if (!flash_) {
    const DeviceScope scope(device());
    flash_.emplace();
  }
  return *flash_;
}

}  // namespace forge::cuda

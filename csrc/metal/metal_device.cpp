#include "metal_device.h"

#include <cstring>

#include "../gpu/weight_format.h"
#include "matrix_places.h"

namespace forge::metal {

namespace {

// Size of the buffer that is bound for missing ones.
constexpr uint64_t kFillerBytes = 16;

}  // namespace

MetalDevice::MetalDevice(uint32_t n_host_threads)
    : device(std::make_shared<const Device>()),
      kernels(device, n_host_threads),
      windows(device),
      n_threads(n_host_threads),
      has_known_matrix_places(metal::has_known_matrix_places(device, kernels)),
      filler(device, kFillerBytes, Purpose::activations, Storage::gpu_only) {}

Place MetalDevice::codebooks() {
  if (!codebooks_) {
    const std::vector<uint8_t> bytes = codebook_bytes();
    codebooks_ = Buffer(device, bytes.size(), Purpose::weights, Storage::shared);
    std::memcpy(codebooks_.data(), bytes.data(), bytes.size());
  }
  return codebooks_.at();
}

}  // namespace forge::metal

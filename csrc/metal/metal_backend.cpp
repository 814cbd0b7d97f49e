// The Metal device: see common/backend.h.

#include "../common/error.h"
#include "../common/json_text.h"
#include "../gpu/gpu_backend.h"
#include "measured_limits.h"
#include "metal_device.h"
#include "metal_executor.h"

namespace forge {

namespace metal {

namespace {

// Describes the attention kernels in use for `forge doctor`.
const char* attention_text(bool has_known_matrix_places) {
  return has_known_matrix_places
             ? "attention tiled for F16, Q8_0 and Q4_0 caches, naive for what is left"
             : "attention naive, which is slow: SIMD groups of this GPU hold matrices otherwise "
               "than the tiled kernels expect";
}

struct MetalGpu {
  using Device = MetalDevice;
  using Weight = MetalWeight;
  using CacheTransfers = metal::CacheTransfers;
  using Executor = MetalExecutor;
};

class MetalBackend : public GpuBackend<MetalGpu> {
 public:
  explicit MetalBackend(uint32_t n_threads)
      : GpuBackend(std::make_shared<MetalDevice>(n_threads)) {}

  std::string info() const override {
    const DeviceProperties& properties = device_->device->properties();
    const uint64_t free = device_->device->free_bytes();
    JsonObject info;
    info.add("name", properties.name);
    info.add("threads", uint64_t{device_->n_threads});
    info.add_raw("features", "[]");
    info.add("kernels", "Metal");
    info.add("memory_bytes", properties.memory_bytes);
    info.add("free_bytes", free);
    info.add_raw("details",
                 json_list({size_text(free) + " of the " + size_text(properties.memory_bytes) +
                                " that Metal recommends to use are free",
                            "a buffer holds up to " + size_text(properties.max_buffer_bytes),
                            attention_text(device_->has_known_matrix_places)}));
    return info.str();
  }

  uint64_t read_bandwidth() override { return measure_bandwidth(*device_); }
  uint64_t matrix_rate() override { return measure_matrix_rate(*device_); }
};

}  // namespace

}  // namespace metal

const char* backend_name() { return "metal"; }

// Empty without a usable device; opening it gives the reason.
std::string list_devices() {
  const std::optional<metal::DeviceProperties> device = metal::usable_device();
  if (!device) return "[]";
  JsonObject entry;
  entry.add("selector", "");
  entry.add("name", device->name);
  entry.add("memory_bytes", device->memory_bytes);
  return "[" + entry.str() + "]";
}

std::unique_ptr<Backend> open_backend(std::string_view selector, uint32_t n_threads) {
  if (!selector.empty()) {
    fail(FORGE_INVALID_ARGUMENT, "the metal device has no variant \"", selector, "\"");
  }
  return std::make_unique<metal::MetalBackend>(host_threads(n_threads));
}

}  // namespace forge

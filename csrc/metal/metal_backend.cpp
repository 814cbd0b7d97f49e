// The Metal device: see common/backend.h.

#include <algorithm>
#include <thread>

#include "../common/error.h"
#include "../common/json_text.h"
#include "bandwidth.h"
#include "metal_device.h"
#include "metal_executor.h"
#include "metal_slots.h"

namespace forge {

namespace metal {

namespace {

// For people: which kernels compute attention.
const char* attention_text(bool has_known_matrix_places) {
  return has_known_matrix_places
             ? "attention tiled for F16 and Q8_0 caches, naive for what is left"
             : "attention naive, which is slow: SIMD groups of this GPU hold matrices otherwise than "
               "the tiled kernels expect";
}

class MetalBackend : public Backend {
 public:
  explicit MetalBackend(uint32_t n_threads) : device_(std::make_shared<MetalDevice>(n_threads)) {}

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

  DeviceMemory memory() const override {
    return {device_->device->properties().memory_bytes, device_->device->free_bytes()};
  }

  uint64_t read_bandwidth() override { return measure_bandwidth(device_->device); }

  std::shared_ptr<Weight> create_weight(WeightSource source) override {
    return std::make_shared<MetalWeight>(std::move(source));
  }

  void read_weight(const Weight& weight, uint64_t first_row, uint64_t n_rows,
                   float* out) const override {
    metal_weight(weight).read(first_row, n_rows, out);
  }

  std::shared_ptr<KvCache> create_kv(const KvShape& shape) override {
    return std::make_shared<MetalKv>(shape, device_->device);
  }

  std::shared_ptr<StateCache> create_state(const StateShape& shape) override {
    return std::make_shared<MetalSlots>(shape, device_->device);
  }

  std::unique_ptr<Executable> compile(std::shared_ptr<const Program> program) override {
    return std::make_unique<MetalExecutor>(std::move(program), device_);
  }

 private:
  std::shared_ptr<MetalDevice> device_;
};

}  // namespace

}  // namespace metal

const char* backend_name() { return "metal"; }

// Empty where Metal has no device: opening it says so.
std::string list_devices() {
  const std::optional<metal::DeviceProperties> device = metal::system_device();
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
  const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
  return std::make_unique<metal::MetalBackend>(n_threads ? n_threads : cores);
}

}  // namespace forge

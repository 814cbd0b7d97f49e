#include "metal_kv.h"

#include <cstring>

#include "commands.h"

namespace forge::metal {

MetalKv::MetalKv(const KvShape& cache_shape, std::shared_ptr<const Device> device)
    : DeviceKv(cache_shape, device->room()), device_(std::move(device)) {}

metal_args::KvPages MetalKv::pages() const {
  return {.page_bytes = page_bytes,
          .head_bytes = layout_.head_bytes,
          .v_offset = layout_.v_offset,
          .k_scales = layout_.k_scales,
          .v_scales = layout_.v_scales,
          .page_tokens = shape.page_tokens,
          .n_kv_heads = shape.n_kv_heads,
          .k_dim = shape.k_head_dim,
          .v_dim = shape.v_head_dim};
}

void MetalKv::allocate() const {
  if (memory_) return;
  Buffer memory(device_, bytes(), Purpose::kv_cache, Storage::gpu_only);
  Commands commands(*device_);
  commands.clear(memory.at(), memory.bytes());
  commands.commit();
  commands.wait("clearing the KV cache");
  memory_ = std::move(memory);
}

Buffer MetalKv::staging() const {
  return Buffer(device_, page_bytes, Purpose::activations, Storage::shared);
}

void MetalKv::copy_page(uint32_t from, uint32_t to) {
  const std::lock_guard lock(device_->mutex());
  allocate();
  Commands commands(*device_);
  commands.copy(page(to), page(from), page_bytes);
  commands.commit();
  commands.wait("copying a KV page");
}

void MetalKv::read_page(uint32_t index, uint8_t* data) const {
  const std::lock_guard lock(device_->mutex());
  allocate();
  const Buffer host = staging();
  Commands commands(*device_);
  commands.copy(host.at(), page(index), page_bytes);
  commands.commit();
  commands.wait("reading a KV page");
  std::memcpy(data, host.data(), page_bytes);
}

void MetalKv::write_page(uint32_t index, const uint8_t* data) {
  const std::lock_guard lock(device_->mutex());
  allocate();
  const Buffer host = staging();
  std::memcpy(host.data(), data, page_bytes);
  Commands commands(*device_);
  commands.copy(page(index), host.at(), page_bytes);
  commands.commit();
  commands.wait("writing a KV page");
}

}  // namespace forge::metal

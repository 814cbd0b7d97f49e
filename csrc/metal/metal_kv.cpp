#include "metal_kv.h"

#include "transfers.h"

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
          .v_dim = shape.v_head_dim,
          .values_in_keys = shape.values_in_keys};
}

void MetalKv::allocate() const {
  if (memory_) return;
  Buffer memory(device_, bytes(), Purpose::kv_cache, Storage::gpu_only);
  fill_with_zeros(*device_, memory, "clearing the KV cache");
  memory_ = std::move(memory);
}

void MetalKv::copy_page(uint32_t from, uint32_t to) {
  const std::lock_guard lock(device_->mutex());
  allocate();
  copy_on_gpu(*device_, page(to), page(from), page_bytes, "copying a KV page");
}

void MetalKv::read_page(uint32_t index, uint8_t* data) const {
  const std::lock_guard lock(device_->mutex());
  allocate();
  read_from_gpu(device_, data, page(index), page_bytes, "reading a KV page");
}

void MetalKv::write_page(uint32_t index, const uint8_t* data) {
  const std::lock_guard lock(device_->mutex());
  allocate();
  write_to_gpu(device_, page(index), data, page_bytes, "writing a KV page");
}

}  // namespace forge::metal

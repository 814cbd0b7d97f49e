#include "cuda_kv.h"

namespace forge::cuda {

CudaKv::CudaKv(const KvShape& cache_shape, std::shared_ptr<DeviceState> state)
    : DeviceKv(cache_shape, state->room()), state_(std::move(state)) {}

void CudaKv::allocate() const {
  if (memory_) return;
  const Device& device = state_->device;
  const DeviceScope scope(device);
  DeviceBuffer memory(state_, bytes(), Purpose::kv_cache);
  device.check(device.api().fill_bytes(memory.at(), 0, bytes(), device.stream()),
               "clearing the KV cache");
  memory_ = std::move(memory);
}

KvPages CudaKv::pages() const {
  return {.data = memory_.at(),
          .page_bytes = page_bytes,
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

void CudaKv::copy_page(uint32_t from, uint32_t to) {
  const Device& device = state_->device;
  const DeviceTurn turn(device);
  allocate();
  device.check(device.api().copy_on_device(page(to), page(from), page_bytes, device.stream()),
               "copying a KV page");
}

void CudaKv::read_page(uint32_t index, uint8_t* data) const {
  const Device& device = state_->device;
  const DeviceTurn turn(device);
  allocate();
  device.check(device.api().copy_to_host(data, page(index), page_bytes, device.stream()),
               "reading a KV page");
  device.synchronize("reading a KV page");
}

void CudaKv::write_page(uint32_t index, const uint8_t* data) {
  const Device& device = state_->device;
  const DeviceTurn turn(device);
  allocate();
  device.check(device.api().copy_to_device(page(index), data, page_bytes, device.stream()),
               "writing a KV page");
  // The caller's buffer is its own again when this returns.
  device.synchronize("writing a KV page");
}

}  // namespace forge::cuda

#include "metal_kv.h"

#include <cstring>

#include "../common/error.h"
#include "../gpu/kv_layout.h"
#include "commands.h"

namespace forge::metal {

MetalKv::MetalKv(const KvShape& cache_shape, std::shared_ptr<const Device> device)
    : device_(std::move(device)) {
  shape = cache_shape;
  const KvLayout layout = kv_layout(shape, "Metal");
  page_bytes = layout.page_bytes;
  pages_ = {.page_bytes = layout.page_bytes,
            .head_bytes = layout.head_bytes,
            .v_offset = layout.v_offset,
            .k_scales = layout.k_scales,
            .v_scales = layout.v_scales,
            .page_tokens = shape.page_tokens,
            .n_kv_heads = shape.n_kv_heads,
            .k_dim = shape.k_head_dim,
            .v_dim = shape.v_head_dim};
  const DeviceProperties& properties = device_->properties();
  if (page_bytes * shape.n_pages > properties.memory_bytes) {
    fail(FORGE_OUT_OF_MEMORY, "a KV cache of ", shape.n_pages, " pages of ", page_bytes,
         " bytes passes the ", size_text(properties.memory_bytes), " of ", properties.name,
         "; a shorter context takes less");
  }
}

const char* MetalKv::element() const {
  switch (shape.type) {
    case WeightType::F32:
      return "float";
    case WeightType::F16:
      return "f16";
    case WeightType::BF16:
      return "bf16";
    default:
      return "q8";
  }
}

void MetalKv::allocate() const {
  if (memory_) return;
  Buffer memory(device_, page_bytes * shape.n_pages, Purpose::kv_cache, Storage::gpu_only);
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

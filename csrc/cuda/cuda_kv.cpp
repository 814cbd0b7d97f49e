#include "cuda_kv.h"

#include <mutex>

namespace forge::cuda {

namespace {

uint64_t pad16(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

// Values of Q8_0 that share a scale.
constexpr uint64_t kScaleGroup = 32;

}  // namespace

CudaKv::CudaKv(const KvShape& cache_shape, std::shared_ptr<DeviceState> state)
    : state_(std::move(state)) {
  shape = cache_shape;
  const bool is_q8 = shape.type == WeightType::Q8_0;
  if (!is_q8 && shape.type != WeightType::F32 && shape.type != WeightType::F16 &&
      shape.type != WeightType::BF16) {
    fail(FORGE_UNSUPPORTED, "KV cache type ", static_cast<uint32_t>(shape.type),
         " is not supported by the CUDA device; valid are F32 (0), F16 (1), BF16 (30) and Q8_0 (8)");
  }
  const uint64_t element = is_q8 ? 1 : shape.type == WeightType::F32 ? 4 : 2;
  const uint64_t tokens = shape.page_tokens;
  const auto values = [&](uint64_t dim) { return pad16(tokens * dim * element); };
  const auto scales = [&](uint64_t dim) {
    return is_q8 ? pad16(tokens * ((dim + kScaleGroup - 1) / kScaleGroup) * 2) : 0;
  };
  const uint64_t k_scales = values(shape.k_head_dim);
  const uint64_t v_offset = k_scales + scales(shape.k_head_dim);
  const uint64_t v_scales = v_offset + values(shape.v_head_dim);
  const uint64_t head_bytes = v_scales + scales(shape.v_head_dim);
  page_bytes = head_bytes * shape.n_kv_heads;
  layout_ = {.data = 0,
             .page_bytes = page_bytes,
             .head_bytes = static_cast<uint32_t>(head_bytes),
             .v_offset = static_cast<uint32_t>(v_offset),
             .k_scales = static_cast<uint32_t>(k_scales),
             .v_scales = static_cast<uint32_t>(v_scales),
             .page_tokens = shape.page_tokens,
             .n_kv_heads = shape.n_kv_heads,
             .k_dim = shape.k_head_dim,
             .v_dim = shape.v_head_dim};
  if (bytes() > state_->device.properties().memory_bytes) {
    fail(FORGE_OUT_OF_MEMORY, "a KV cache of ", shape.n_pages, " pages of ", page_bytes,
         " bytes passes the ", size_text(state_->device.properties().memory_bytes),
         " of the CUDA device; a shorter context takes less");
  }
}

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
  KvPages pages = layout_;
  pages.data = memory_.at();
  return pages;
}

const char* CudaKv::element() const {
  switch (shape.type) {
    case WeightType::F32:
      return "float";
    case WeightType::BF16:
      return "bf16";
    case WeightType::Q8_0:
      return "q8";
    default:
      return "f16";
  }
}

void CudaKv::copy_page(uint32_t from, uint32_t to) {
  const Device& device = state_->device;
  const std::lock_guard lock(device.mutex());
  device.require_working();
  const DeviceScope scope(device);
  allocate();
  device.check(device.api().copy_on_device(page(to), page(from), page_bytes, device.stream()),
               "copying a KV page");
}

void CudaKv::read_page(uint32_t index, uint8_t* data) const {
  const Device& device = state_->device;
  const std::lock_guard lock(device.mutex());
  device.require_working();
  const DeviceScope scope(device);
  allocate();
  device.check(device.api().copy_to_host(data, page(index), page_bytes, device.stream()),
               "reading a KV page");
  device.synchronize("reading a KV page");
}

void CudaKv::write_page(uint32_t index, const uint8_t* data) {
  const Device& device = state_->device;
  const std::lock_guard lock(device.mutex());
  device.require_working();
  const DeviceScope scope(device);
  allocate();
  device.check(device.api().copy_to_device(page(index), data, page_bytes, device.stream()),
               "writing a KV page");
  // The caller's buffer is its own again when this returns.
  device.synchronize("writing a KV page");
}

}  // namespace forge::cuda

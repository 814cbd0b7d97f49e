#include "device_caches.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "../common/error.h"
#include "rounding.h"

namespace forge {

namespace {

// Throws FORGE_UNSUPPORTED, naming the device, for an element type that GPUs do not store.
KvLayout kv_layout(const KvShape& shape, const std::string& device) {
  if (kv_row_bytes(shape.type, 1) == 0) {
    fail(FORGE_UNSUPPORTED, "KV cache type ", static_cast<uint32_t>(shape.type),
         " is not supported by ", device,
         "; valid are F32 (0), F16 (1), BF16 (30), Q8_0 (8) and Q4_0 (2)");
  }
  const uint64_t tokens = shape.page_tokens;
  const auto values = [&](uint64_t dim) {
    return padded_to(tokens * kv_row_bytes(shape.type, dim), 16);
  };
  const auto scales = [&](uint64_t dim) {
    return shape.has_scales() ? padded_to(tokens * divide_up(dim, kKvScaleGroup) * 2, 16) : 0;
  };
  const uint64_t k_scales = values(shape.k_head_dim);
  if (shape.values_in_keys) {
    const uint64_t head_bytes = k_scales + scales(shape.k_head_dim);
    return {.page_bytes = head_bytes * shape.n_kv_heads,
            .head_bytes = static_cast<uint32_t>(head_bytes),
            .v_offset = 0,
            .k_scales = static_cast<uint32_t>(k_scales),
            .v_scales = static_cast<uint32_t>(k_scales)};
  }
  const uint64_t v_offset = k_scales + scales(shape.k_head_dim);
  const uint64_t v_scales = v_offset + values(shape.v_head_dim);
  const uint64_t head_bytes = v_scales + scales(shape.v_head_dim);
  return {.page_bytes = head_bytes * shape.n_kv_heads,
          .head_bytes = static_cast<uint32_t>(head_bytes),
          .v_offset = static_cast<uint32_t>(v_offset),
          .k_scales = static_cast<uint32_t>(k_scales),
          .v_scales = static_cast<uint32_t>(v_scales)};
}

}  // namespace

uint64_t kv_row_bytes(WeightType type, uint64_t n) {
  switch (type) {
    case WeightType::F32: return 4 * n;
    case WeightType::F16:
    case WeightType::BF16: return 2 * n;
    case WeightType::Q8_0: return n;
    case WeightType::Q4_0: return padded_to(n, kKvScaleGroup) / 2;
    default: return 0;
  }
}

DeviceKv::DeviceKv(const KvShape& cache_shape, const DeviceRoom& room)
    : layout_(kv_layout(cache_shape, room.device)) {
  shape = cache_shape;
  page_bytes = layout_.page_bytes;
  if (bytes() > room.total_bytes) {
    fail(FORGE_OUT_OF_MEMORY, "a KV cache of ", shape.n_pages, " pages of ", page_bytes,
         " bytes passes the ", size_text(room.total_bytes), " of ", room.device,
         "; a shorter context takes less");
  }
}

DeviceStateCache::DeviceStateCache(const StateShape& cache_shape, const DeviceRoom& room) {
  shape = cache_shape;
  slot_bytes = stride() * sizeof(float);
  if (bytes() > room.total_bytes) {
    fail(FORGE_OUT_OF_MEMORY, "recurrent state of ", shape.n_slots, " slots of ", slot_bytes,
         " bytes passes the ", size_text(room.total_bytes), " of ", room.device);
  }
}

kernel_args::KvPages DeviceKv::kernel_pages() const {
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

const char* DeviceKv::element() const {
  switch (shape.type) {
    case WeightType::F32:
      return "float";
    case WeightType::BF16:
      return "bf16";
    case WeightType::Q8_0:
      return "q8";
    case WeightType::Q4_0:
      return "q4";
    default:
      return "f16";
  }
}

bool has_tiled_heads(const KvShape& shape) {
  constexpr uint32_t dims[] = {16, 32, 64, 80, 96, 128, 256};
  return shape.k_head_dim == shape.v_head_dim && !shape.values_in_keys &&
         std::ranges::find(dims, shape.k_head_dim) != std::end(dims);
}

bool has_latent_heads(const KvShape& shape) {
  const std::pair dims{shape.k_head_dim, shape.v_head_dim};
  return shape.values_in_keys && (dims == std::pair{288u, 256u} || dims == std::pair{576u, 512u});
}

std::string element_instance(const char* kernel, const DeviceKv& kv) {
  return std::string(kernel) + "<" + kv.element() + ">";
}

std::string head_instance(const char* kernel, const DeviceKv& kv) {
  return std::string(kernel) + "<" + kv.element() + ", " + std::to_string(kv.shape.k_head_dim) +
         ">";
}

}  // namespace forge

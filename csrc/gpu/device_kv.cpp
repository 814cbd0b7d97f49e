#include "device_kv.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "../common/error.h"

namespace forge {

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

const char* DeviceKv::element() const {
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

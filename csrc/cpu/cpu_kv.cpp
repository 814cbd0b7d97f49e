#include "cpu_kv.h"

#include <cstring>

#include "../common/error.h"

namespace forge::cpu {

namespace {

// Kernels read whole vectors, which may pass the end of the last head.
constexpr uint64_t kSlack = 256;

// Writes elements of `Element` to every `stride`-th place.
template <class Element>
void scatter(const void* from, uint32_t n, uint32_t stride, uint8_t* to) {
  const auto* values = static_cast<const uint8_t*>(from);
  for (uint32_t i = 0; i < n; ++i) {
    std::memcpy(to + i * uint64_t{stride} * sizeof(Element), values + i * sizeof(Element),
                sizeof(Element));
  }
}

}  // namespace

CpuKv::CpuKv(const KvShape& cache_shape, const KernelTable& kernels) : kernels_(kernels) {
  shape = cache_shape;
  if (shape.type != WeightType::F32 && shape.type != WeightType::F16) {
    fail(FORGE_UNSUPPORTED, "KV cache type ", static_cast<uint32_t>(shape.type),
         " is not supported by the CPU device; valid are F32 (0) and F16 (1)");
  }
  element_bytes_ = is_f16() ? 2 : 4;
  k_bytes_ = uint64_t{shape.page_tokens} * shape.k_head_dim * element_bytes_;
  head_bytes_ = k_bytes_ + uint64_t{shape.page_tokens} * shape.v_head_dim * element_bytes_;
  page_bytes = head_bytes_ * shape.n_kv_heads;
  if (page_bytes > (UINT64_MAX >> 1) / shape.n_pages) {
    fail(FORGE_OUT_OF_MEMORY, "a KV cache of ", shape.n_pages, " pages of ", page_bytes, " bytes");
  }
  memory_ = Memory(page_bytes * shape.n_pages + kSlack);
}

void CpuKv::store(uint32_t page_index, uint32_t slot, const float* k, const float* v) {
  // 4096 is the widest head that the border admits.
  uint8_t half[2 * 4096];
  const uint32_t k_dim = shape.k_head_dim, v_dim = shape.v_head_dim;
  for (uint32_t head = 0; head < shape.n_kv_heads; ++head, k += k_dim, v += v_dim) {
    uint8_t* keys = page(page_index) + head * head_bytes_;
    uint8_t* values = keys + k_bytes_ + uint64_t{slot} * v_dim * element_bytes_;
    keys += slot * element_bytes_;
    if (is_f16()) {
      kernels_.to_f16(k, k_dim, half);
      scatter<uint16_t>(half, k_dim, shape.page_tokens, keys);
      kernels_.to_f16(v, v_dim, values);
    } else {
      scatter<float>(k, k_dim, shape.page_tokens, keys);
      std::memcpy(values, v, v_dim * sizeof(float));
    }
  }
}

void CpuKv::copy_page(uint32_t from, uint32_t to) {
  std::memcpy(page(to), page(from), page_bytes);
}

void CpuKv::read_page(uint32_t index, uint8_t* data) const {
  std::memcpy(data, page(index), page_bytes);
}

void CpuKv::write_page(uint32_t index, const uint8_t* data) {
  std::memcpy(page(index), data, page_bytes);
}

}  // namespace forge::cpu

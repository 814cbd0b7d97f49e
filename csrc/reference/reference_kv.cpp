#include "reference_kv.h"

#include <cstring>

#include "../common/error.h"
#include "../common/float16.h"

namespace forge::reference {

ReferenceKv::ReferenceKv(const KvShape& cache_shape) {
  shape = cache_shape;
  if (shape.type != WeightType::F32 && shape.type != WeightType::F16) {
    fail(FORGE_UNSUPPORTED, "KV cache type ", static_cast<uint32_t>(shape.type),
         " is not supported by the reference device; valid are F32 and F16");
  }
  element_bytes_ = shape.type == WeightType::F32 ? 4 : 2;
  page_bytes = static_cast<uint64_t>(shape.page_tokens) * (k_cols() + v_cols()) * element_bytes_;
  data_.resize(page_bytes * shape.n_pages);
}

uint64_t ReferenceKv::index(uint32_t page, uint32_t slot, uint32_t i) const {
  const uint64_t token = static_cast<uint64_t>(page) * shape.page_tokens + slot;
  return (token * (k_cols() + v_cols()) + i) * element_bytes_;
}

void ReferenceKv::store(uint32_t page, uint32_t slot, const float* k, const float* v) {
  for (uint32_t i = 0; i < k_cols() + v_cols(); ++i) {
    const float value = i < k_cols() ? k[i] : v[i - k_cols()];
    uint8_t* at = data_.data() + index(page, slot, i);
    if (element_bytes_ == 4) {
      std::memcpy(at, &value, 4);
    } else {
      const uint16_t half = f32_to_f16(value);
      std::memcpy(at, &half, 2);
    }
  }
}

float ReferenceKv::load(uint32_t page, uint32_t slot, uint32_t i) const {
  const uint8_t* at = data_.data() + index(page, slot, i);
  if (element_bytes_ == 4) {
    float value;
    std::memcpy(&value, at, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, at, 2);
  return f16_to_f32(half);
}

void ReferenceKv::copy_page(uint32_t from, uint32_t to) {
  std::memcpy(data_.data() + to * page_bytes, data_.data() + from * page_bytes, page_bytes);
}

void ReferenceKv::read_page(uint32_t page, uint8_t* data) const {
  std::memcpy(data, data_.data() + page * page_bytes, page_bytes);
}

void ReferenceKv::write_page(uint32_t page, const uint8_t* data) {
  std::memcpy(data_.data() + page * page_bytes, data, page_bytes);
}

}  // namespace forge::reference

#include "reference_kv.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../common/error.h"
#include "../common/float16.h"

namespace forge::reference {

namespace {

constexpr uint32_t kBlock = 32;

// Rounds a block as a Q8_0 or Q4_0 cache does: to whole multiples of a scale, ties to even. All
// become NaN if one is not finite.
void round_block(float* x, uint32_t n, WeightType type) {
  float high = 0, low = 0;
  bool finite = true;
  for (uint32_t i = 0; i < n; ++i) {
    finite = finite && std::isfinite(x[i]);
    high = std::max(high, x[i]);
    low = std::min(low, x[i]);
  }
  const bool is_q8 = type == WeightType::Q8_0;
  const float unit = is_q8 ? std::max(high, -low) / 127 : (high >= -low ? high : low) / -8;
  const float scale = finite ? f16_to_f32(f32_to_f16(unit)) : NAN;
  const float inverse = scale != 0 ? 1 / scale : 0;
  for (uint32_t i = 0; i < n; ++i) {
    const float level = std::nearbyint(x[i] * inverse);
    x[i] = (is_q8 ? std::clamp(level, -127.0f, 127.0f) : std::clamp(level, -8.0f, 7.0f)) * scale;
  }
}

std::vector<float> rounded(const float* from, uint32_t cols, uint32_t head_dim, WeightType type) {
  std::vector<float> x(from, from + cols);
  for (uint32_t head = 0; head < cols; head += head_dim) {
    for (uint32_t i = 0; i < head_dim; i += kBlock) {
      round_block(x.data() + head + i, std::min(kBlock, head_dim - i), type);
    }
  }
  return x;
}

}  // namespace

ReferenceKv::ReferenceKv(const KvShape& cache_shape) {
  shape = cache_shape;
  if (shape.type != WeightType::F32 && shape.type != WeightType::F16 &&
      shape.type != WeightType::BF16 && !shape.has_scales()) {
    fail(FORGE_UNSUPPORTED, "KV cache type ", static_cast<uint32_t>(shape.type),
         " is not supported by the reference device; valid are F32, F16, BF16, Q8_0 and Q4_0");
  }
  const bool is_half = shape.type == WeightType::F16 || shape.type == WeightType::BF16;
  element_bytes_ = is_half ? 2 : 4;
  page_bytes = static_cast<uint64_t>(shape.page_tokens) * (k_cols() + v_cols()) * element_bytes_;
  data_.resize(page_bytes * shape.n_pages);
}

uint64_t ReferenceKv::index(uint32_t page, uint32_t slot, uint32_t i) const {
  const uint64_t token = static_cast<uint64_t>(page) * shape.page_tokens + slot;
  return (token * (k_cols() + v_cols()) + i) * element_bytes_;
}

void ReferenceKv::store(uint32_t page, uint32_t slot, const float* k, const float* v) {
  if (shape.has_scales()) {
    const std::vector<float> keys = rounded(k, k_cols(), shape.k_head_dim, shape.type);
    const std::vector<float> values = rounded(v, v_cols(), shape.v_head_dim, shape.type);
    for (uint32_t i = 0; i < k_cols(); ++i) store_one(page, slot, i, keys[i]);
    for (uint32_t i = 0; i < v_cols(); ++i) store_one(page, slot, k_cols() + i, values[i]);
    return;
  }
  for (uint32_t i = 0; i < k_cols(); ++i) store_one(page, slot, i, k[i]);
  for (uint32_t i = 0; i < v_cols(); ++i) store_one(page, slot, k_cols() + i, v[i]);
}

void ReferenceKv::store_one(uint32_t page, uint32_t slot, uint32_t i, float value) {
  uint8_t* at = data_.data() + index(page, slot, i);
  if (element_bytes_ == 4) {
    std::memcpy(at, &value, 4);
  } else {
    const bool is_brain = shape.type == WeightType::BF16;
    const uint16_t half = is_brain ? f32_to_bf16(value) : f32_to_f16(value);
    std::memcpy(at, &half, 2);
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
  return shape.type == WeightType::BF16 ? bf16_to_f32(half) : f16_to_f32(half);
}

void ReferenceKv::copy(uint32_t from, uint32_t to) {
  std::memcpy(data_.data() + to * page_bytes, data_.data() + from * page_bytes, page_bytes);
}

void ReferenceKv::read(uint32_t page, uint8_t* data) const {
  std::memcpy(data, data_.data() + page * page_bytes, page_bytes);
}

void ReferenceKv::write(uint32_t page, const uint8_t* data) {
  std::memcpy(data_.data() + page * page_bytes, data, page_bytes);
}

}  // namespace forge::reference

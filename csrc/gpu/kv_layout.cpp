#include "kv_layout.h"

#include "../common/error.h"
#include "rounding.h"

namespace forge {

namespace {

// Values of Q8_0 that share a scale.
constexpr uint64_t kScaleGroup = 32;

}  // namespace

KvLayout kv_layout(const KvShape& shape, const std::string& device) {
  const bool is_q8 = shape.type == WeightType::Q8_0;
  if (!is_q8 && shape.type != WeightType::F32 && shape.type != WeightType::F16 &&
      shape.type != WeightType::BF16) {
    fail(FORGE_UNSUPPORTED, "KV cache type ", static_cast<uint32_t>(shape.type),
         " is not supported by ", device, "; valid are F32 (0), F16 (1), BF16 (30) and Q8_0 (8)");
  }
  const uint64_t element = is_q8 ? 1 : shape.type == WeightType::F32 ? 4 : 2;
  const uint64_t tokens = shape.page_tokens;
  const auto values = [&](uint64_t dim) { return padded_to(tokens * dim * element, 16); };
  const auto scales = [&](uint64_t dim) {
    return is_q8 ? padded_to(tokens * divide_up(dim, kScaleGroup) * 2, 16) : 0;
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

}  // namespace forge

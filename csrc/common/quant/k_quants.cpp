#include "k_quants.h"

namespace forge {

void dequantize_block(const BlockQ2_K& block, float* out) {
  const float d = block.d.value();
  const float dmin = block.dmin.value();
  for (uint32_t s = 0; s < 16; ++s) {
    const float scale = d * static_cast<float>(nibble(block.scales[s], 0));
    const float min = dmin * static_cast<float>(nibble(block.scales[s], 1));
    const FieldPosition at = two_bit_fields(s);
    for (uint32_t i = 0; i < 16; ++i) {
      const int q = (block.qs[at.first + i] >> at.shift) & 3;
      out[16 * s + i] = scale * static_cast<float>(q) - min;
    }
  }
}

void dequantize_block(const BlockQ3_K& block, float* out) {
  const float d = block.d.value();
  for (uint32_t s = 0; s < 16; ++s) {
    const float scale = d * static_cast<float>(static_cast<int>(q3_k_scale(block.scales, s)) - 32);
    const FieldPosition at = two_bit_fields(s);
    for (uint32_t i = 0; i < 16; ++i) {
      const int low = (block.qs[at.first + i] >> at.shift) & 3;
      const int high = (block.hmask[16 * (s % 2) + i] >> (s / 2)) & 1;
      out[16 * s + i] = scale * static_cast<float>((low | high << 2) - 4);
    }
  }
}

void dequantize_block(const BlockQ4_K& block, float* out) {
  const float d = block.d.value();
  const float dmin = block.dmin.value();
  for (uint32_t s = 0; s < 8; ++s) {
    const ScaleMin packed = unpack_scale_min(block.scales, s);
    const float scale = d * static_cast<float>(packed.scale);
    const float min = dmin * static_cast<float>(packed.min);
    for (uint32_t i = 0; i < 32; ++i) {
      const uint32_t q = nibble(block.qs[32 * (s / 2) + i], s);
      out[32 * s + i] = scale * static_cast<float>(q) - min;
    }
  }
}

void dequantize_block(const BlockQ5_K& block, float* out) {
  const float d = block.d.value();
  const float dmin = block.dmin.value();
  for (uint32_t s = 0; s < 8; ++s) {
    const ScaleMin packed = unpack_scale_min(block.scales, s);
    const float scale = d * static_cast<float>(packed.scale);
    const float min = dmin * static_cast<float>(packed.min);
    for (uint32_t i = 0; i < 32; ++i) {
      const uint32_t low = nibble(block.qs[32 * (s / 2) + i], s);
      const uint32_t high = (block.qh[i] >> s) & 1;
      out[32 * s + i] = scale * static_cast<float>(low | high << 4) - min;
    }
  }
}

void dequantize_block(const BlockQ6_K& block, float* out) {
  const float d = block.d.value();
  for (uint32_t s = 0; s < 16; ++s) {
    const float scale = d * static_cast<float>(block.scales[s]);
    const FieldPosition low_at = q6_k_low_fields(s);
    const FieldPosition high_at = two_bit_fields(s);
    for (uint32_t i = 0; i < 16; ++i) {
      const int low = (block.ql[low_at.first + i] >> low_at.shift) & 0xf;
      const int high = (block.qh[high_at.first + i] >> high_at.shift) & 3;
      out[16 * s + i] = scale * static_cast<float>((low | high << 4) - 32);
    }
  }
}

}  // namespace forge

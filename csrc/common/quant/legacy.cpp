#include "legacy.h"

namespace forge {
namespace {

// The four-bit field of weight `i`.
int low_bits(const uint8_t (&qs)[16], uint32_t i) {
  return static_cast<int>(nibble(qs[i % 16], i / 16));
}

// The five-bit field of weight `i`.
int five_bits(const uint8_t (&qs)[16], uint32_t qh, uint32_t i) {
  return low_bits(qs, i) | static_cast<int>((qh >> i) & 1) << 4;
}

}  // namespace

void dequantize_block(const BlockQ4_0& block, float* out) {
  const float d = block.d.value();
  for (uint32_t i = 0; i < 32; ++i) out[i] = d * static_cast<float>(low_bits(block.qs, i) - 8);
}

void dequantize_block(const BlockQ4_1& block, float* out) {
  const float d = block.d.value();
  const float m = block.m.value();
  for (uint32_t i = 0; i < 32; ++i) out[i] = d * static_cast<float>(low_bits(block.qs, i)) + m;
}

void dequantize_block(const BlockQ5_0& block, float* out) {
  const float d = block.d.value();
  const uint32_t qh = block.qh.value();
  for (uint32_t i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(five_bits(block.qs, qh, i) - 16);
  }
}

void dequantize_block(const BlockQ5_1& block, float* out) {
  const float d = block.d.value();
  const float m = block.m.value();
  const uint32_t qh = block.qh.value();
  for (uint32_t i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(five_bits(block.qs, qh, i)) + m;
  }
}

void dequantize_block(const BlockQ8_0& block, float* out) {
  const float d = block.d.value();
  for (uint32_t i = 0; i < 32; ++i) out[i] = d * static_cast<float>(block.qs[i]);
}

}  // namespace forge

#include "iq1.h"

namespace forge {
namespace {

// out[i] = scale * (value i of `codeword` ± 1/8), for eight values.
void dequantize_ternary(uint64_t codeword, bool shifted_down, float scale, float* out) {
  const float shift = shifted_down ? -0.125f : 0.125f;
  for (uint32_t i = 0; i < 8; ++i) {
    const int8_t value = static_cast<int8_t>(codeword >> (8 * i));
    out[i] = scale * (static_cast<float>(value) + shift);
  }
}

}  // namespace

void dequantize_block(const BlockIQ1_S& block, float* out) {
  const float d = block.d.value();
  for (uint32_t s = 0; s < 8; ++s) {
    const uint32_t qh = block.qh[s].value();
    const float scale = d * static_cast<float>(1 + 2 * ((qh >> 12) & 7));
    for (uint32_t k = 4 * s; k < 4 * s + 4; ++k) {
      const uint32_t index = block.qs[k] | ((qh >> (3 * (k % 4))) & 7) << 8;
      dequantize_ternary(iq1_grid[index], (qh & 0x8000) != 0, scale, out + 8 * k);
    }
  }
}

void dequantize_block(const BlockIQ1_M& block, float* out) {
  uint32_t d_bits = 0;
  for (uint32_t n = 0; n < 4; ++n) {
    d_bits |= static_cast<uint32_t>(block.scales[n].value() >> 12) << (4 * n);
  }
  const float d = f16_to_f32(static_cast<uint16_t>(d_bits));
  for (uint32_t k = 0; k < 32; ++k) {
    const uint32_t s = k / 2;
    const uint32_t scale = (block.scales[s / 4].value() >> (3 * (s % 4))) & 7;
    const uint32_t qh = nibble(block.qh[k / 2], k);
    const uint32_t index = block.qs[k] | (qh & 7) << 8;
    dequantize_ternary(iq1_grid[index], (qh & 8) != 0, d * static_cast<float>(1 + 2 * scale),
                       out + 8 * k);
  }
}

}  // namespace forge

#include "iq4.h"

namespace forge {
namespace {

// out[32] = scale * level of each of the 32 fields in qs[16].
void dequantize_levels(const uint8_t* qs, float scale, float* out) {
  for (uint32_t i = 0; i < 32; ++i) {
    out[i] = scale * static_cast<float>(iq4_levels[nibble(qs[i % 16], i / 16)]);
  }
}

}  // namespace

void dequantize_block(const BlockIQ4_NL& block, float* out) {
  dequantize_levels(block.qs, block.d.value(), out);
}

void dequantize_block(const BlockIQ4_XS& block, float* out) {
  const float d = block.d.value();
  for (uint32_t s = 0; s < 8; ++s) {
    const float scale = d * static_cast<float>(iq4_xs_scale(block, s));
    dequantize_levels(block.qs + 16 * s, scale, out + 32 * s);
  }
}

}  // namespace forge

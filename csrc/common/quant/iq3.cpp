#include "iq3.h"

#include "codebook.h"

namespace forge {
namespace {

// The index of weights 4 * group .. 4 * group + 3 in iq3_s_grid.
uint32_t iq3_s_index(const BlockIQ3_S& block, uint32_t group) {
  return block.qs[group] | ((block.qh[group / 8] >> (group % 8)) & 1u) << 8;
}

}  // namespace

void dequantize_block(const BlockIQ3_XXS& block, float* out) {
  const float d = block.d.value();
  for (uint32_t s = 0; s < 8; ++s) {
    const uint32_t scale_signs = block.scales_signs[s].value();
    const float scale = d * (0.5f + static_cast<float>(scale_signs >> 28)) * 0.5f;
    for (uint32_t k = 0; k < 4; ++k) {
      const uint8_t* q = block.qs + 8 * s + 2 * k;
      const uint64_t magnitudes = iq3_xxs_grid[q[0]] | uint64_t{iq3_xxs_grid[q[1]]} << 32;
      const uint32_t signs = even_signs((scale_signs >> (7 * k)) & 0x7f);
      dequantize_codeword(magnitudes, signs, scale, out + 32 * s + 8 * k);
    }
  }
}

void dequantize_block(const BlockIQ3_S& block, float* out) {
  const float d = block.d.value();
  for (uint32_t s = 0; s < 8; ++s) {
    const float scale = d * static_cast<float>(1 + 2 * nibble(block.scales[s / 2], s));
    for (uint32_t k = 4 * s; k < 4 * s + 4; ++k) {
      const uint64_t magnitudes = iq3_s_grid[iq3_s_index(block, 2 * k)] |
                                  uint64_t{iq3_s_grid[iq3_s_index(block, 2 * k + 1)]} << 32;
      dequantize_codeword(magnitudes, block.signs[k], scale, out + 8 * k);
    }
  }
}

}  // namespace forge

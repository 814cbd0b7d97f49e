#include "iq2.h"

#include "codebook.h"

namespace forge {
namespace {

// The factor of the magnitudes of a sub-block with the integer scale `scale`.
float step(float d, uint32_t scale) { return d * (0.5f + static_cast<float>(scale)) * 0.25f; }

}  // namespace

void dequantize_block(const BlockIQ2_XXS& block, float* out) {
  const float d = block.d.value();
  for (const BlockIQ2_XXS::SubBlock& sub_block : block.sub_blocks) {
    const uint32_t scale_signs = sub_block.scale_signs.value();
    const float scale = step(d, scale_signs >> 28);
    for (uint32_t k = 0; k < 4; ++k) {
      const uint32_t signs = even_signs((scale_signs >> (7 * k)) & 0x7f);
      dequantize_codeword(iq2_xxs_grid[sub_block.qs[k]], signs, scale, out);
      out += 8;
    }
  }
}

void dequantize_block(const BlockIQ2_XS& block, float* out) {
  const float d = block.d.value();
  for (uint32_t k = 0; k < 32; ++k) {
    const uint32_t q = block.qs[k].value();
    const float scale = step(d, nibble(block.scales[k / 4], k / 2));
    dequantize_codeword(iq2_xs_grid[q & 0x1ff], even_signs(q >> 9), scale, out + 8 * k);
  }
}

void dequantize_block(const BlockIQ2_S& block, float* out) {
  const float d = block.d.value();
  for (uint32_t k = 0; k < 32; ++k) {
    const uint32_t high = (block.qh[k / 4] >> (2 * (k % 4))) & 3;
    const float scale = step(d, nibble(block.scales[k / 4], k / 2));
    dequantize_codeword(iq2_s_grid[block.qs[k] | high << 8], block.signs[k], scale, out + 8 * k);
  }
}

}  // namespace forge

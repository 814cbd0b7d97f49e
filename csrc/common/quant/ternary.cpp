#include "ternary.h"

namespace forge {
namespace {

// Writes digit k of byte i to out[n_bytes * k + i], for all digits; returns the end of the output.
float* dequantize_run(const uint8_t* bytes, uint32_t n_bytes, uint32_t n_digits, float d,
                      float* out) {
  for (uint32_t k = 0; k < n_digits; ++k) {
    for (uint32_t i = 0; i < n_bytes; ++i) {
      *out++ = d * static_cast<float>(ternary_digit(bytes[i], k) - 1);
    }
  }
  return out;
}

}  // namespace

void dequantize_block(const BlockTQ1_0& block, float* out) {
  const float d = block.d.value();
  out = dequantize_run(block.qs, 32, 5, d, out);
  out = dequantize_run(block.qs + 32, 16, 5, d, out);
  dequantize_run(block.qh, 4, 4, d, out);
}

void dequantize_block(const BlockTQ2_0& block, float* out) {
  const float d = block.d.value();
  for (uint32_t i = 0; i < 256; ++i) {
    const int q = (block.qs[32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4))) & 3;
    out[i] = d * static_cast<float>(q - 1);
  }
}

}  // namespace forge

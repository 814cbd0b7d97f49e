#pragma once

// Shared by the codebook formats (IQ1, IQ2, IQ3): a field is an index into a table of vectors of
// four or eight weights ("codewords"), one byte a weight, the first weight in the lowest byte.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace forge {

// A codebook in which each weight is `bits` wide and selects one of `levels`, expanded to a byte a
// weight: four weights a codeword when `Word` is uint32_t, eight when it is uint64_t.
template <typename Word, uint32_t bits, size_t n>
constexpr std::array<Word, n> expand_codebook(const uint16_t (&packed)[n],
                                              const std::array<uint8_t, (1u << bits)>& levels) {
  static_assert(sizeof(Word) * bits <= 16);
  std::array<Word, n> codebook{};
  for (size_t entry = 0; entry < n; ++entry) {
    for (uint32_t i = 0; i < sizeof(Word); ++i) {
      const uint32_t level = (packed[entry] >> (bits * i)) & ((1u << bits) - 1);
      codebook[entry] |= Word{levels[level]} << (8 * i);
    }
  }
  return codebook;
}

// Eight sign bits from seven: the eighth makes the number of minus signs even.
constexpr uint32_t even_signs(uint32_t seven_bits) {
  return seven_bits | (std::popcount(seven_bits) & 1u) << 7;
}

// out[i] = ± scale * byte i of `magnitudes`, minus where bit i of `signs` is set; i is 0 to 7.
inline void dequantize_codeword(uint64_t magnitudes, uint32_t signs, float scale, float* out) {
  for (uint32_t i = 0; i < 8; ++i) {
    const float magnitude = static_cast<float>((magnitudes >> (8 * i)) & 0xff);
    out[i] = ((signs >> i) & 1) != 0 ? -scale * magnitude : scale * magnitude;
  }
}

}  // namespace forge

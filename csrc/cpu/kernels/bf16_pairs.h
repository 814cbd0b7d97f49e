#pragma once

// Panels of pairs of columns of BF16, for the dot products of AVX512-BF16 and AMX: what a Unit of
// bf16_products.h does with them, but for the products.

#include "bf16_products.h"
#include "transpose.h"

namespace forge::cpu::FORGE_TARGET {

struct PairPanels {
  static constexpr uint64_t kColumns = 2;
  static constexpr bool kReadsRounded = true;

  // Writes whole vectors of 32 numbers, the last one filled with zeros.
  static void round(const float* x, uint64_t n, uint8_t* out) {
    for (uint64_t i = 0; i < n; i += 2 * kLanes) {
      const int left = static_cast<int>(smaller(n - i, 2 * kLanes));
      const Vec low = load_up_to(x + i, left < kLanes ? left : kLanes);
      const Vec high = left > kLanes ? load_up_to(x + i + kLanes, left - kLanes) : zero();
      const __m512bh both = _mm512_cvtne2ps_pbh(high.v, low.v);
      memcpy(out + 2 * i, &both, sizeof both);
    }
  }

  static void round_token(const float* x, uint64_t n, uint32_t t, uint8_t* out) {
    round(x, n, out + t * kChunk * 2);
  }

  static void copy_token(const uint8_t* x, uint64_t n, uint32_t t, uint8_t* out) {
    memcpy(out + t * kRoundedBytes, x, 2 * ((n + 1) / 2 * 2));
  }

  static uint64_t pack_whole(const uint8_t* const (&rows)[kPanelRows], uint64_t n, uint8_t* out) {
    constexpr uint32_t kAtOnce = Squares<uint32_t>::kColumns;
    uint64_t pair = 0;
    for (; pair + kAtOnce <= n; pair += kAtOnce) {
      transpose<uint32_t>(rows, pair * 4, out + pair * 4 * kPanelRows);
    }
    return pair;
  }
};

}  // namespace forge::cpu::FORGE_TARGET

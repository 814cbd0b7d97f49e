// Products of BF16 by AMX, of any number of tokens: one token takes a tile of 16, whose weights are
// read faster than memory delivers them. A lane of a tile of sums adds the even and the odd ones of
// 32 columns, then both to what it has.

// Only on Linux, the one system that is asked for tiles (host/cpu_features.cpp): GCC's intrinsics
// do not assemble on Windows, where a long is too short for a stride.
#if defined(__linux__)

#include "../amx_tiles.h"
#include "../bf16_pairs.h"
#include "../bf16_products.h"

namespace forge::cpu {

namespace avx512_amx {

namespace {

constexpr uint64_t kTileBytes = kTileRows * kTileStride;
constexpr uint64_t kTilePairs = 16;  // pairs of columns of a tile
constexpr uint64_t kTokenBytes = kChunk * 2;
constexpr uint64_t kSumBytes = kProductRows * sizeof(float);  // from token to token

struct Tiles : PairPanels {
  static constexpr uint32_t kTileTokens = 32;
  static constexpr auto base = kernels_avx512_amx_f32;
  static constexpr auto finish = FORGE_TARGET::finish;

  struct Scope {
    TileShapes shapes{kTileStride};
  };

  static void set_attention(KernelTable& table) {
    table.attention_split = kernels_avx512_bf16().attention_split;
  }

  template <int n_tokens, int n_panels>
  static void tile(const uint8_t* panels, uint64_t panel_stride, uint64_t n_pairs, const uint8_t* x,
                   bool from_memory, float* sums) {
    before_tile_loads();
    for (int p = 0; p < n_panels; p += 2) {
      multiply<(n_tokens > 16), (n_panels > 1)>(panels + p * panel_stride, panel_stride, n_pairs, x,
                                                from_memory, sums + p * kPanelRows);
    }
  }

 private:
  // Multiplies 16 tokens with one panel, or twice as many.
  template <bool two_tokens, bool two_panels>
  static void multiply(const uint8_t* panel, uint64_t panel_stride, uint64_t n_pairs,
                       const uint8_t* x, bool from_memory, float* sums) {
    float* next_sums = sums + kTileRows * kProductRows;
    _tile_loadd(0, sums, kSumBytes);
    if constexpr (two_panels) _tile_loadd(1, sums + kPanelRows, kSumBytes);
    if constexpr (two_tokens) _tile_loadd(2, next_sums, kSumBytes);
    if constexpr (two_tokens && two_panels) _tile_loadd(3, next_sums + kPanelRows, kSumBytes);
    uint64_t pair = 0;
    for (; pair + kTilePairs <= n_pairs; pair += kTilePairs) {
      const uint8_t* w = panel + pair * kTileStride;
      if (from_memory) {
        for (uint64_t line = 0; line < kTileBytes; line += 64) {
          __builtin_prefetch(w + kPrefetchBytes + line);
          if (two_panels) __builtin_prefetch(w + panel_stride + kPrefetchBytes + line);
        }
      }
      multiply_tile<two_tokens, two_panels>(w, w + panel_stride, x + 4 * pair);
    }
    if (pair < n_pairs) {
      // The tokens are followed by zeros, which a NaN of the next weights must not meet.
      alignas(64) uint8_t rest[2][kTileBytes] = {};
      for (int p = 0; p <= (two_panels ? 1 : 0); ++p) {
        memcpy(rest[p], panel + p * panel_stride + pair * kTileStride,
               (n_pairs - pair) * kTileStride);
      }
      before_tile_loads();
      multiply_tile<two_tokens, two_panels>(rest[0], rest[1], x + 4 * pair);
    }
    _tile_stored(0, sums, kSumBytes);
    if constexpr (two_panels) _tile_stored(1, sums + kPanelRows, kSumBytes);
    if constexpr (two_tokens) _tile_stored(2, next_sums, kSumBytes);
    if constexpr (two_tokens && two_panels) _tile_stored(3, next_sums + kPanelRows, kSumBytes);
  }

  template <bool two_tokens, bool two_panels>
  FORGE_INLINE void multiply_tile(const uint8_t* w, const uint8_t* next_w, const uint8_t* x) {
    _tile_loadd(4, x, kTokenBytes);
    _tile_loadd(6, w, kTileStride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (two_panels) {
      _tile_loadd(7, next_w, kTileStride);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (two_tokens) {
      _tile_loadd(5, x + kTileRows * kTokenBytes, kTokenBytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (two_panels) _tile_dpbf16ps(3, 5, 7);
    }
  }
};

}  // namespace

}  // namespace avx512_amx

const KernelTable& kernels_avx512_amx() {
  return avx512_amx::Bf16Products<avx512_amx::Tiles>::table<false>("avx512_amx");
}

const KernelTable& kernels_avx512_amx_f16() {
  return avx512_amx::Bf16Products<avx512_amx::Tiles>::table<true>("avx512_amx");
}

}  // namespace forge::cpu

#endif

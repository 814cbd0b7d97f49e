#pragma once

// Products of tiles with Intel's AMX. A tile has 16 rows of up to 64 bytes. One instruction
// multiplies 16 tokens with 16 rows of a weight, 64 columns of bytes or 32 of BF16; a panel is its
// second operand as it lies in memory: 16 rows side by side, 4 bytes of each.
//
// Quantised blocks have a scale for 32 columns, or for 16, so that their tiles are a half or a
// quarter as wide as the processor allows. Their sums are those of int8_tile.h to the bit.

#include "int8_tile.h"

namespace forge::cpu::FORGE_TARGET {

constexpr uint32_t kTileRows = 16;
constexpr uint64_t kTileStride = 64;  // bytes from row to row of sums and of weights
static_assert(kPanelRows * sizeof(float) == kTileStride && kGroupBytes == kTileStride);

// Keeps writes before the tile loads that follow: GCC's intrinsics do not tell what they read.
FORGE_INLINE void before_tile_loads() { asm volatile("" ::: "memory"); }

// The shapes of the tiles of this thread, until the object is destroyed: 0 to 3 are sums of 16
// tokens by 16 rows, 4 and 5 are `bytes` of 16 tokens, 6 and 7 the same bytes of 16 rows.
class TileShapes {
 public:
  explicit TileShapes(uint32_t bytes) {
    Config config = {};
    config.palette = 1;
    for (int tile = 0; tile < 8; ++tile) {
      const bool of_tokens = tile == 4 || tile == 5;
      config.row_bytes[tile] = static_cast<uint16_t>(of_tokens ? bytes : kTileStride);
      config.rows[tile] = static_cast<uint8_t>(tile < 6 ? kTileRows : bytes / 4);
    }
    before_tile_loads();
    _tile_loadconfig(&config);
  }
  ~TileShapes() { _tile_release(); }
  TileShapes(const TileShapes&) = delete;
  TileShapes& operator=(const TileShapes&) = delete;

 private:
  // The operand of LDTILECFG.
  struct alignas(64) Config {
    uint8_t palette;
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
  };
  static_assert(sizeof(Config) == 64);
};

// ---- quantised weights ----------------------------------------------------------------------

// Stores a block with a signed byte for each weight.
template <class Format>
FORGE_INLINE void unpack_bytes(const typename Format::Panel& panel, uint32_t block,
                               uint8_t (&out)[8][kGroupBytes]) {
  unrolled<8>([&]<int g>() FORGE_ALWAYS_INLINE {
    ByteGroup bytes = Format::template group<g>(panel, block);
    for (ByteVec& part : bytes.part) part -= static_cast<uint8_t>(Format::kBias);
    memcpy(out[g], &bytes, sizeof bytes);
  });
}

// The tokens of a tile, copied next to each other, since those of experts are not. multiply()
// multiplies them with unpacked panels.
template <class Format, int n_tokens>
class TokenTile {
 public:
  using Panel = typename Format::Panel;
  static_assert(n_tokens == kTileRows && kTilePanelsInt8 == 2);

  TokenTile(const ActivationBlock* const (&tokens)[n_tokens], uint64_t length) : length_(length) {
    for (uint64_t at = 0; at < length; ++at) {
      Block& to = blocks_[at];
      for (int t = 0; t < n_tokens; ++t) {
        const ActivationBlock& from = tokens[t][at];
        for (uint32_t half = 0; half < kHalves; ++half) {
          memcpy(to.q[half][t], from.q + kCols * half, kCols);
          to.sum[half][t] = from.scaled_sum[kHalves == 1 ? 0 : 1 + half];
        }
        to.scale[t] = from.scale;
      }
    }
    before_tile_loads();
  }

  // sums[t][16 p + row] += the product of row `row` of panel p with token t, or = if `begins`. Not
  // inlined: one copy serves all types with the same unpacked form.
  __attribute__((noinline)) void multiply(const Panel* panels, bool begins, float* sums,
                                          uint32_t sums_stride) const {
    constexpr int kTogether = 4 / kHalves;
    uint64_t at = 0;
    for (; at + kTogether <= length_; at += kTogether) {
      add<kTogether>(panels + at, blocks_ + at, begins && at == 0, sums, sums_stride);
    }
    for (; at < length_; ++at) {
      add<1>(panels + at, blocks_ + at, begins && at == 0, sums, sums_stride);
    }
  }

 private:
  static constexpr uint32_t kHalves = Panel::kHalves;
  static constexpr uint32_t kCols = kBlockCols / kHalves;  // of a product of tiles
  static constexpr int kPanels = kTilePanelsInt8;

  struct alignas(64) Block {
    int8_t q[kHalves][n_tokens][kCols];
    float scale[n_tokens];
    float sum[kHalves][n_tokens];
  };

  // Multiplies n_blocks blocks in integers, then scales and adds them: the factors of rows stay in
  // registers, and sums are loaded once.
  template <int n_blocks>
  FORGE_ALWAYS_INLINE void add(const Panel* panels, const Block* blocks, bool begins, float* sums,
                               uint32_t sums_stride) const {
    constexpr int kProducts = n_blocks * kHalves;
    alignas(64) int32_t dots[kProducts][kPanels][n_tokens][kPanelRows];
    unrolled<kProducts>([&]<int i>() FORGE_ALWAYS_INLINE {
      constexpr uint32_t kHalf = i % kHalves;
      const Panel* panel = panels + i / kHalves;
      const int8_t* x = blocks[i / kHalves].q[kHalf][0];
      const uint8_t* w[kPanels] = {panel[0].bytes[8 / kHalves * kHalf],
                                   panel[length_].bytes[8 / kHalves * kHalf]};
      // Operands of the intrinsics are digits. Products alternate between tiles of sums, so that
      // one is stored while the next is computed.
#define FORGE_MULTIPLY_TILES(sum, next_sum, tokens)    \
  _tile_zero(sum);                                     \
  _tile_zero(next_sum);                                \
  _tile_loadd(tokens, x, kCols);                       \
  _tile_loadd(6, w[0], kTileStride);                   \
  _tile_dpbssd(sum, tokens, 6);                        \
  _tile_loadd(7, w[1], kTileStride);                   \
  _tile_dpbssd(next_sum, tokens, 7);                   \
  _tile_stored(sum, dots[i][0], kTileStride);          \
  _tile_stored(next_sum, dots[i][1], kTileStride)
      if constexpr (i % 2 == 0) {
        FORGE_MULTIPLY_TILES(0, 1, 4);
      } else {
        FORGE_MULTIPLY_TILES(2, 3, 5);
      }
#undef FORGE_MULTIPLY_TILES
    });
    Vec scale[kProducts][kPanels], minimum[kProducts][kPanels];
    for (int i = 0; i < kProducts; ++i) {
      for (int p = 0; p < kPanels; ++p) {
        const auto& factors = panels[p * length_ + i / kHalves].factors;
        scale[i][p] = load(factors[i % kHalves]);
        if constexpr (Panel::kHasMin) minimum[i][p] = load(factors[kHalves + i % kHalves]);
      }
    }
    for (int t = 0; t < n_tokens; ++t) {
      float* to = sums + t * sums_stride;
      Vec total[kPanels];
      for (int p = 0; p < kPanels; ++p) total[p] = begins ? zero() : load(to + kPanelRows * p);
      FORGE_UNROLL(4)
      for (int i = 0; i < kProducts; ++i) {
        const Vec by = set(blocks[i / kHalves].scale[t]);
        for (int p = 0; p < kPanels; ++p) {
          IntVec dot;
          memcpy(&dot, dots[i][p][t], sizeof dot);
          total[p] = fma(to_floats(dot), scale[i][p] * by, total[p]);
        }
        if constexpr (Panel::kHasMin) {
          const Vec sum = set(blocks[i / kHalves].sum[i % kHalves][t]);
          for (int p = 0; p < kPanels; ++p) total[p] = fma(minimum[i][p], sum, total[p]);
        }
      }
      for (int p = 0; p < kPanels; ++p) store(to + kPanelRows * p, total[p]);
    }
  }

  uint64_t length_;
  Block blocks_[kUnpackedCols / kBlockCols];
};

}  // namespace forge::cpu::FORGE_TARGET

#pragma once

// Products with quantised panels. A few tokens are multiplied with packed panels. For many tokens,
// panels are unpacked once, to one byte per weight and float scales, in pieces that stay in the
// cache while all tiles of tokens are multiplied. Both add the same numbers in the same order, so
// the results are the same.

#include "int8_tile.h"
#if defined(__ARM_FEATURE_MATMUL_INT8)
#include "int8_matrix_tile.h"
#elif defined(__AMX_INT8__)
#include "amx_tiles.h"
#else

namespace forge::cpu::FORGE_TARGET {

// Stores a block with a byte for each weight.
template <class Format>
FORGE_INLINE void unpack_bytes(const typename Format::Panel& panel, uint32_t block,
                               uint8_t (&out)[8][kGroupBytes]) {
  unrolled<8>([&]<int g>() FORGE_ALWAYS_INLINE {
    const ByteGroup bytes = Format::template group<g>(panel, block);
    memcpy(out[g], &bytes, sizeof bytes);
  });
}

// The tokens of a tile, which multiply() multiplies with unpacked panels.
template <class Format, int n_tokens>
class TokenTile {
 public:
  using Panel = typename Format::Panel;
  FORGE_ALWAYS_INLINE TokenTile(const ActivationBlock* const (&tokens)[n_tokens], uint64_t length)
      : tokens_(tokens), length_(length) {}

  // See int8_tile.
  FORGE_ALWAYS_INLINE void multiply(const Panel* panels, bool begins, float* sums,
                                    uint32_t sums_stride) const {
    int8_tile<Format, n_tokens, kTilePanelsInt8>(reinterpret_cast<const uint8_t*>(panels),
                                                 length_ * sizeof(Panel), length_, tokens_, begins,
                                                 sums, sums_stride);
  }

 private:
  const ActivationBlock* const (&tokens_)[n_tokens];
  uint64_t length_;
};

}  // namespace forge::cpu::FORGE_TARGET

#endif

namespace forge::cpu::FORGE_TARGET {

template <class Format>
void unpack(const typename Format::Panel* panel, uint64_t length,
            typename Unpacked<Format>::Panel* out) {
  using Panel = typename Format::Panel;
  for (uint64_t i = 0; i < length; ++i, ++panel) {
    const typename Format::Header header = Format::header(*panel);
    for (uint32_t block = 0; block < Panel::kBlocks; ++block, ++out) {
      Format::prefetch(*panel, block);
      for (uint32_t half = 0; half < Panel::kHalves; ++half) {
        store(out->factors[half], Format::scale(*panel, header, block, half));
        if constexpr (Panel::kHasMin) {
          store(out->factors[Panel::kHalves + half], Format::minimum(*panel, header, block, half));
        }
      }
      unpack_bytes<Format>(*panel, block, out->bytes);
    }
  }
}

// The blocks of `n` tokens from `first` on; repeats the last token past the end.
template <int n>
FORGE_INLINE void token_blocks(const MatmulBlock& block, uint32_t first, uint64_t first_block,
                               const ActivationBlock* (&out)[n]) {
  for (uint32_t t = 0; t < n; ++t) {
    out[t] = block.tokens[smaller(first + t, block.n_tokens - 1)].blocks + first_block;
  }
}

template <class Format>
void multiply_few(const MatmulBlock& block) {
  const uint64_t length = block.panel_bytes / sizeof(typename Format::Panel);
  const uint8_t* panel = block.panels;
  for (uint32_t row = 0; row < block.n_rows; row += kPanelRows, panel += block.panel_bytes) {
    const uint32_t n_rows = static_cast<uint32_t>(smaller(kPanelRows, block.n_rows - row));
    for (uint32_t first = 0; first < block.n_tokens; first += kDirectTokens) {
      const uint32_t n = static_cast<uint32_t>(smaller(kDirectTokens, block.n_tokens - first));
      alignas(64) float sums[kDirectTokens * kPanelRows];
      with_tile_tokens<kDirectTokens>(n, [&]<int n_tokens>() FORGE_ALWAYS_INLINE {
        const ActivationBlock* tokens[n_tokens];
        token_blocks(block, first, 0, tokens);
        int8_tile<Format, n_tokens, 1>(panel, 0, length, tokens, true, sums, kPanelRows);
      });
      for (uint32_t t = 0; t < n; ++t) {
        finish(block, block.tokens[first + t], row, n_rows, sums + t * kPanelRows);
      }
    }
  }
}

// Prefetches the outputs and residuals of a token while its products are computed.
FORGE_INLINE void fetch_results(const MatmulBlock& block, const MatmulToken& token, uint32_t row,
                                uint32_t n_rows) {
  const uint64_t at = block.first_row + row;
  for (uint32_t r = 0; r < n_rows; r += 16) {
    if (token.residual) __builtin_prefetch(token.residual + at + r);
    __builtin_prefetch(token.out + at + r, 1);
  }
}

// Multiplies up to kUnpackedPanels panels from row `row` on. If columns are unpacked in several
// pieces, `sums` carries the sums from piece to piece.
template <class Format>
void multiply_unpacked(const MatmulBlock& block, uint32_t row, uint8_t* scratch, float* sums) {
  using Panel = typename Format::Panel;
  using UnpackedPanel = typename Unpacked<Format>::Panel;
  constexpr uint32_t kStride = kUnpackedPanels * kPanelRows;
  const uint32_t n_rows = static_cast<uint32_t>(smaller(kStride, block.n_rows - row));
  const uint8_t* panels = block.panels + row / kPanelRows * block.panel_bytes;
  auto* unpacked = reinterpret_cast<UnpackedPanel*>(scratch);
  const uint64_t sums_step = block.cols > kUnpackedCols ? kStride : 0;
  for (uint64_t col = 0; col < block.cols; col += kUnpackedCols) {
    const uint64_t length = smaller(kUnpackedCols, block.cols - col) / kBlockCols;
    const bool ends = col + kUnpackedCols >= block.cols;
    for (uint32_t p = 0; p * kPanelRows < n_rows; ++p) {
      const auto* panel = reinterpret_cast<const Panel*>(panels + p * block.panel_bytes);
      unpack<Format>(panel + col / kBlockCols / Panel::kBlocks, length / Panel::kBlocks,
                     unpacked + p * length);
    }
    for (uint32_t first = 0; first < block.n_tokens; first += kTileTokensInt8) {
      const uint32_t n = static_cast<uint32_t>(smaller(kTileTokensInt8, block.n_tokens - first));
      float* at = sums + first * sums_step;
      if (ends) {
        for (uint32_t t = 0; t < n; ++t) fetch_results(block, block.tokens[first + t], row, n_rows);
      }
      with_tile_tokens<kTileTokensInt8>(n, [&]<int n_tokens>() FORGE_ALWAYS_INLINE {
        const ActivationBlock* tokens[n_tokens];
        token_blocks(block, first, col / kBlockCols, tokens);
        const TokenTile<Unpacked<Format>, n_tokens> tile(tokens, length);
        // Past the last panel the tile multiplies undefined data; those sums are not used.
        for (uint32_t p = 0; p * kPanelRows < n_rows; p += kTilePanelsInt8) {
          tile.multiply(unpacked + p * length, col == 0, at + p * kPanelRows, kStride);
        }
      });
      if (!ends) continue;
      for (uint32_t t = 0; t < n; ++t) {
        finish(block, block.tokens[first + t], row, n_rows, at + t * kStride);
      }
    }
  }
}

template <class Format>
void multiply_many(const MatmulBlock& block, uint8_t* scratch) {
  static_assert(kUnpackedPanels * kUnpackedCols / kBlockCols *
                    sizeof(typename Unpacked<Format>::Panel) <= kMatmulTileBytes);
  auto* sums = reinterpret_cast<float*>(scratch + kMatmulTileBytes);
  for (uint32_t row = 0; row < block.n_rows; row += kUnpackedPanels * kPanelRows) {
    multiply_unpacked<Format>(block, row, scratch, sums);
  }
}

template <WeightType type>
void int8_matmul(const MatmulBlock& block, uint8_t* scratch) {
  if (block.n_tokens <= kFewTokens) return multiply_few<FormatOf<type>>(block);
  multiply_many<FormatOf<type>>(block, scratch);
}

}  // namespace forge::cpu::FORGE_TARGET

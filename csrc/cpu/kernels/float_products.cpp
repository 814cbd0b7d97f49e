// Products with float panels, and with rows that are dequantised into such panels first.
//
// A lane holds the sum of one row. Sums are taken over chunks of kChunk columns, in order, and the
// sums of chunks are added in order, for any number of tokens: the result of a token does not
// depend on the tokens that it is computed together with.

#include "product_kernels.h"

namespace forge::cpu::FORGE_TARGET {

namespace {

constexpr uint64_t kChunk = 256;
constexpr uint32_t kTilePanels = 4;  // unpacked at once, in the second-level cache
constexpr uint32_t kStride = kTilePanels * kPanelRows;
static_assert(kTilePanels % kTilePanelsFloat == 0);
static_assert(kChunk * kStride * sizeof(float) <= kMatmulTileBytes);

// Far enough ahead to hide the latency of memory; measured.
constexpr int kPrefetchBytes = 2048;

// Readers of panels by type: `columns` locates up to four columns from `col` on, a multiple of four
// where panels are blocks of columns, and `column` reads the i-th of them.

struct LoadF32 {
  static constexpr uint64_t kColumnBytes = 4 * kPanelRows;
  struct Columns {
    const uint8_t* first;
  };
  FORGE_INLINE Columns columns(const uint8_t* panel, uint64_t col) {
    return {panel + col * kColumnBytes};
  }
  FORGE_INLINE Group column(Columns columns, uint64_t i) {
    const uint8_t* at = columns.first + i * kColumnBytes;
    Group out;
    for (int v = 0; v < Group::kVectors; ++v) {
      memcpy(&out.part[v], at + 4 * kLanes * v, sizeof(Vec));
    }
    return out;
  }
};

template <Vec (*load_half)(const uint8_t*)>
struct LoadHalf {
  static constexpr uint64_t kColumnBytes = 2 * kPanelRows;
  using Columns = LoadF32::Columns;
  FORGE_INLINE Columns columns(const uint8_t* panel, uint64_t col) {
    return {panel + col * kColumnBytes};
  }
  FORGE_INLINE Group column(Columns columns, uint64_t i) {
    const uint8_t* at = columns.first + i * kColumnBytes;
    Group out;
    for (int v = 0; v < Group::kVectors; ++v) out.part[v] = load_half(at + 2 * kLanes * v);
    return out;
  }
};
using LoadF16 = LoadHalf<load_f16>;
using LoadBF16 = LoadHalf<load_bf16>;

// Each weight is rounded to float32 once, so that products equal those of an F32 weight with the
// same numbers to the bit.
struct LoadFP8 {
  static constexpr uint64_t kColumnBytes = kPanelRows;
  struct Columns {
    const uint8_t* first;
    const float* scales;
  };
  FORGE_INLINE Columns columns(const uint8_t* panel, uint64_t col) {
    const auto& block = reinterpret_cast<const FP8Panel*>(panel)[col / kBlockCols];
    return {block.q[col % kBlockCols], block.d};
  }
  FORGE_INLINE Group column(Columns columns, uint64_t i) {
    const uint8_t* at = columns.first + i * kColumnBytes;
    Group out;
    for (int v = 0; v < Group::kVectors; ++v) {
      out.part[v] = load_e4m3(at + kLanes * v) * load(columns.scales + kLanes * v);
    }
    return out;
  }
};
static_assert(kChunk % kBlockCols == 0);

// sums[t][16 p + row] += the product of columns [first_col, first_col + n_cols) of row `row` of
// panel p with token t, whose activations begin at tokens[t].
template <class Load, int n_tokens, int n_panels, bool from_memory>
void float_tile(const uint8_t* panels, uint64_t panel_stride, uint64_t first_col, uint64_t n_cols,
                const float* const* tokens, float* sums, uint32_t sums_stride) {
  constexpr int kVectors = Group::kVectors;
  const float* x[n_tokens];
  Vec sum[n_tokens][n_panels][kVectors];
  for (int t = 0; t < n_tokens; ++t) {
    x[t] = tokens[t];
    for (auto& panel : sum[t]) {
      for (Vec& part : panel) part = zero();
    }
  }
  typename Load::Columns columns[n_panels];
  const auto find_columns = [&](uint64_t col) FORGE_ALWAYS_INLINE {
    for (int p = 0; p < n_panels; ++p) {
      columns[p] = Load::columns(panels + p * panel_stride, first_col + col);
    }
  };
  const auto add_column = [&](uint64_t col, uint64_t i) FORGE_ALWAYS_INLINE {
    Group w[n_panels];
    for (int p = 0; p < n_panels; ++p) w[p] = Load::column(columns[p], i);
    for (int t = 0; t < n_tokens; ++t) {
      const Vec a = set(x[t][col + i]);
      for (int p = 0; p < n_panels; ++p) {
        for (int v = 0; v < kVectors; ++v) sum[t][p][v] = fma(w[p].part[v], a, sum[t][p][v]);
      }
    }
  };
  uint64_t col = 0;
  for (; col + 4 <= n_cols; col += 4) {
    find_columns(col);
    if constexpr (from_memory) {
      for (int p = 0; p < n_panels; ++p) {
        const uint8_t* ahead = columns[p].first + kPrefetchBytes;
        for (uint64_t i = 0; i < 4 * Load::kColumnBytes; i += 64) __builtin_prefetch(ahead + i);
      }
    }
    FORGE_UNROLL(4)
    for (uint64_t i = 0; i < 4; ++i) add_column(col, i);
  }
  for (; col < n_cols; ++col) {
    find_columns(col);
    add_column(col, 0);
  }
  for (int t = 0; t < n_tokens; ++t) {
    for (int p = 0; p < n_panels; ++p) {
      float* to = sums + t * sums_stride + p * kPanelRows;
      for (int v = 0; v < kVectors; ++v) {
        store(to + v * kLanes, load(to + v * kLanes) + sum[t][p][v]);
      }
    }
  }
}

// Addresses of column `col` of `n` tokens from `first` on; repeats the last token past the end.
template <int n>
FORGE_INLINE void token_columns(const MatmulBlock& block, uint32_t first, uint64_t col,
                                const float* (&out)[n]) {
  for (uint32_t t = 0; t < n; ++t) {
    out[t] = block.tokens[smaller(first + t, block.n_tokens - 1)].x + col;
  }
}

// Multiplies a few tokens with n_panels packed panels from row `row` on.
template <class Load, int n_panels>
void multiply_few(const MatmulBlock& block, uint32_t row) {
  constexpr uint32_t kRows = n_panels * kPanelRows;
  const uint8_t* panels = block.panels + row / kPanelRows * block.panel_bytes;
  for (uint32_t first = 0; first < block.n_tokens; first += kDirectTokensFloat) {
    const uint32_t n = static_cast<uint32_t>(smaller(kDirectTokensFloat, block.n_tokens - first));
    alignas(64) float sums[kDirectTokensFloat * kRows] = {};
    for (uint64_t col = 0; col < block.cols; col += kChunk) {
      const uint64_t n_cols = smaller(kChunk, block.cols - col);
      with_tile_tokens<kDirectTokensFloat>(n, [&]<int n_tokens>() FORGE_ALWAYS_INLINE {
        const float* x[n_tokens];
        token_columns(block, first, col, x);
        float_tile<Load, n_tokens, n_panels, true>(panels, block.panel_bytes, col, n_cols, x, sums,
                                                   kRows);
      });
    }
    const uint32_t n_rows = static_cast<uint32_t>(smaller(kRows, block.n_rows - row));
    for (uint32_t t = 0; t < n; ++t) {
      finish(block, block.tokens[first + t], row, n_rows, sums + t * kRows);
    }
  }
}

// Fills a tile with columns [col, col + n_cols) of up to kTilePanels panels: [panel][column][row].
using FillTile = void (*)(const MatmulBlock& block, uint32_t row, uint64_t col, uint64_t n_cols,
                          float* tile);

template <class Load>
void unpack_tile(const MatmulBlock& block, uint32_t row, uint64_t col, uint64_t n_cols,
                 float* tile) {
  for (uint32_t p = 0; p < kTilePanels && row + p * kPanelRows < block.n_rows; ++p) {
    const uint8_t* from = block.panels + (row / kPanelRows + p) * block.panel_bytes;
    for (uint64_t c = 0; c < n_cols; ++c) {
      store(tile + (p * n_cols + c) * kPanelRows, Load::column(Load::columns(from, col + c), 0));
    }
  }
}

void dequantize_tile(const MatmulBlock& block, uint32_t row, uint64_t col, uint64_t n_cols,
                     float* tile) {
  // A row of these types is a whole number of blocks, and so is a chunk.
  static_assert(kChunk % 256 == 0);
  const uint64_t first_byte = block.row_bytes * col / block.cols;
  for (uint32_t r = 0; r < kStride && row + r < block.n_rows; ++r) {
    float values[kChunk];
    block.dequantize(block.rows + (row + r) * block.row_bytes + first_byte, values, n_cols);
    float* to = tile + r / kPanelRows * n_cols * kPanelRows + r % kPanelRows;
    for (uint64_t c = 0; c < n_cols; ++c) to[c * kPanelRows] = values[c];
  }
}

template <FillTile fill>
void multiply_tiles(const MatmulBlock& block, uint8_t* scratch) {
  auto* tile = reinterpret_cast<float*>(scratch);
  auto* sums = reinterpret_cast<float*>(scratch + kMatmulTileBytes);
  for (uint32_t row = 0; row < block.n_rows; row += kStride) {
    const uint32_t n_rows = static_cast<uint32_t>(smaller(kStride, block.n_rows - row));
    memset(sums, 0, block.n_tokens * kStride * sizeof(float));
    for (uint64_t col = 0; col < block.cols; col += kChunk) {
      const uint64_t n_cols = smaller(kChunk, block.cols - col);
      fill(block, row, col, n_cols, tile);
      for (uint32_t first = 0; first < block.n_tokens; first += kTileTokensFloat) {
        const uint32_t n = static_cast<uint32_t>(smaller(kTileTokensFloat, block.n_tokens - first));
        with_tile_tokens<kTileTokensFloat>(n, [&]<int n_tokens>() FORGE_ALWAYS_INLINE {
          const float* x[n_tokens];
          token_columns(block, first, col, x);
          // Past the last row the tile multiplies undefined data; those sums are not used.
          for (uint32_t r = 0; r < n_rows; r += kTilePanelsFloat * kPanelRows) {
            float_tile<LoadF32, n_tokens, kTilePanelsFloat, false>(
                reinterpret_cast<const uint8_t*>(tile + r * n_cols), n_cols * LoadF32::kColumnBytes,
                0, n_cols, x, sums + first * kStride + r, kStride);
          }
        });
      }
    }
    for (uint32_t t = 0; t < block.n_tokens; ++t) {
      finish(block, block.tokens[t], row, n_rows, sums + t * kStride);
    }
  }
}

template <class Load>
void multiply_panels(const MatmulBlock& block, uint8_t* scratch) {
  if (block.n_tokens > kFewTokens) return multiply_tiles<unpack_tile<Load>>(block, scratch);
  uint32_t row = 0;
  for (; row + kPanelRows < block.n_rows; row += 2 * kPanelRows) multiply_few<Load, 2>(block, row);
  if (row < block.n_rows) multiply_few<Load, 1>(block, row);
}

}  // namespace

ProductKernel float_products(WeightType type) {
  switch (type) {
    case WeightType::F32: return multiply_panels<LoadF32>;
    case WeightType::F16: return multiply_panels<LoadF16>;
    case WeightType::BF16: return multiply_panels<LoadBF16>;
    case WeightType::FP8: return multiply_panels<LoadFP8>;
    default: return multiply_tiles<dequantize_tile>;
  }
}

}  // namespace forge::cpu::FORGE_TARGET

// Products of BF16 weights with activations rounded to BF16, by the dot product of two columns that
// AVX512-BF16 has. All other kernels are those of AVX-512.
//
// A panel holds pairs of columns, [pair][row][2]; after an odd number of columns the last pair has
// a zero. A lane holds the sum of one row. Pairs are added in order over chunks of kChunk columns,
// and the sums of chunks in order, for any number of tokens: the result of a token does not depend
// on the tokens that it is computed together with.

#include "../product_kernels.h"
#include "../transpose.h"

namespace forge::cpu {

namespace avx512 {

void finish(const MatmulBlock& block, const MatmulToken& token, uint32_t first, uint32_t n_rows,
            const float* sums);

}  // namespace avx512

namespace avx512_bf16 {

namespace {

constexpr uint64_t kChunk = 256;
constexpr uint64_t kChunkPairs = kChunk / 2;
constexpr uint64_t kPairBytes = 4 * kPanelRows;
// 24 accumulators, 4 weights and a pair of activations of 32 registers. The panels of a chunk fit
// the first-level cache.
constexpr uint32_t kTileTokensBF16 = 6, kTilePanels = 4;
constexpr uint32_t kTileRows = kTilePanels * kPanelRows;
static_assert((kMatmulTokens + kTileTokensBF16) * kChunk * 2 <= kMatmulTileBytes);

// As in float_products.cpp.
constexpr int kPrefetchBytes = 2048;

uint64_t pairs_of(uint64_t cols) { return (cols + 1) / 2; }

// Rounds n <= kChunk activations, followed by a zero if n is odd. NaN and infinity stay.
void round_chunk(const float* x, uint64_t n, uint8_t* out) {
  for (uint64_t i = 0; i < n; i += 2 * kLanes) {
    const int left = static_cast<int>(smaller(n - i, 2 * kLanes));
    const Vec low = load_up_to(x + i, left < kLanes ? left : kLanes);
    const Vec high = left > kLanes ? load_up_to(x + i + kLanes, left - kLanes) : zero();
    const __m512bh both = _mm512_cvtne2ps_pbh(high.v, low.v);
    memcpy(out + 2 * i, &both, sizeof both);
  }
}

// sums[t][16 p + row] += the product of n_pairs pairs of columns of row `row` of panel p with the
// rounded activations x[t][kChunk].
template <int n_tokens, int n_panels>
void tile(const uint8_t* panels, uint64_t panel_stride, uint64_t n_pairs, const uint8_t* x,
          bool from_memory, float* sums) {
  __m512 sum[n_tokens][n_panels];
  for (auto& token : sum) {
    for (__m512& panel : token) panel = _mm512_setzero_ps();
  }
  const int ahead = from_memory ? kPrefetchBytes : 0;
  for (uint64_t pair = 0; pair < n_pairs; ++pair) {
    __m512bh w[n_panels];
    for (int p = 0; p < n_panels; ++p) {
      const uint8_t* at = panels + p * panel_stride + pair * kPairBytes;
      __builtin_prefetch(at + ahead);
      memcpy(&w[p], at, sizeof w[p]);
    }
    for (int t = 0; t < n_tokens; ++t) {
      int32_t both;
      memcpy(&both, x + (t * kChunkPairs + pair) * 4, sizeof both);
      const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
      for (int p = 0; p < n_panels; ++p) sum[t][p] = _mm512_dpbf16_ps(sum[t][p], w[p], a);
    }
  }
  for (int t = 0; t < n_tokens; ++t) {
    for (int p = 0; p < n_panels; ++p) {
      float* to = sums + t * kTileRows + p * kPanelRows;
      store(to, load(to) + Vec{sum[t][p]});
    }
  }
}

// Multiplies all tokens with n_panels panels from row `row` on.
template <int n_panels>
void multiply_rows(const MatmulBlock& block, uint32_t row, uint8_t* scratch) {
  uint8_t* x = scratch;
  auto* sums = reinterpret_cast<float*>(scratch + kMatmulTileBytes);
  const uint8_t* panels = block.panels + row / kPanelRows * block.panel_bytes;
  memset(sums, 0, block.n_tokens * kTileRows * sizeof(float));
  for (uint64_t col = 0; col < block.cols; col += kChunk) {
    const uint64_t n_cols = smaller(kChunk, block.cols - col);
    for (uint32_t t = 0; t < block.n_tokens; ++t) {
      round_chunk(block.tokens[t].x + col, n_cols, x + t * kChunk * 2);
    }
    for (uint32_t t = 0; t < block.n_tokens; t += kTileTokensBF16) {
      with_tile_tokens<kTileTokensBF16>(block.n_tokens - t, [&]<int n_tokens>() FORGE_ALWAYS_INLINE {
        tile<n_tokens, n_panels>(panels + col / 2 * kPairBytes, block.panel_bytes, pairs_of(n_cols),
                                 x + t * kChunk * 2, t == 0, sums + t * kTileRows);
      });
    }
  }
  const auto n_rows = static_cast<uint32_t>(smaller(n_panels * kPanelRows, block.n_rows - row));
  for (uint32_t t = 0; t < block.n_tokens; ++t) {
    avx512::finish(block, block.tokens[t], row, n_rows, sums + t * kTileRows);
  }
}

void multiply_pairs(const MatmulBlock& block, uint8_t* scratch) {
  uint32_t row = 0;
  for (; row + kTileRows - kPanelRows < block.n_rows; row += kTileRows) {
    multiply_rows<kTilePanels>(block, row, scratch);
  }
  for (; row < block.n_rows; row += kPanelRows) multiply_rows<1>(block, row, scratch);
}

// Missing rows repeat the last one; their results are unused.
void pack_pairs(const uint8_t* rows, uint64_t row_bytes, uint32_t n_rows, uint64_t cols,
                uint8_t* out) {
  constexpr uint32_t kAtOnce = Squares<uint32_t>::kColumns;
  const uint8_t* from[kPanelRows];
  for (uint32_t row = 0; row < kPanelRows; ++row) {
    from[row] = rows + (row < n_rows ? row : n_rows - 1) * row_bytes;
  }
  uint64_t pair = 0;
  for (; pair + kAtOnce <= cols / 2; pair += kAtOnce) {
    transpose<uint32_t>(from, pair * 4, out + pair * kPairBytes);
  }
  for (; pair < pairs_of(cols); ++pair) {
    const uint64_t bytes = smaller(4, (cols - 2 * pair) * 2);
    for (uint32_t row = 0; row < kPanelRows; ++row) {
      uint32_t both = 0;
      memcpy(&both, from[row] + pair * 4, bytes);
      memcpy(out + pair * kPairBytes + row * 4, &both, 4);
    }
  }
}

// Packs F16 as BF16, kChunk columns at a time.
void pack_rounded(const uint8_t* rows, uint64_t row_bytes, uint32_t n_rows, uint64_t cols,
                  uint8_t* out) {
  alignas(64) uint8_t rounded[kPanelRows][2 * kChunk];
  for (uint64_t col = 0; col < cols; col += kChunk) {
    const uint64_t n_cols = smaller(kChunk, cols - col);
    for (uint32_t row = 0; row < n_rows; ++row) {
      uint8_t halves[2 * kChunk] = {};
      memcpy(halves, rows + row * row_bytes + 2 * col, 2 * n_cols);
      float values[kChunk];
      for (uint64_t i = 0; i < n_cols; i += kLanes) store(values + i, load_f16(halves + 2 * i));
      round_chunk(values, n_cols, rounded[row]);
    }
    pack_pairs(rounded[0], sizeof rounded[0], n_rows, n_cols, out + col / 2 * kPairBytes);
  }
}

// True if weights of a type have panels of pairs.
template <bool with_f16>
constexpr bool has_pairs(WeightType type) {
  return type == WeightType::BF16 || (with_f16 && type == WeightType::F16);
}

template <bool with_f16>
void multiply(const MatmulBlock& block, uint8_t* scratch) {
  if (has_pairs<with_f16>(block.type)) return multiply_pairs(block, scratch);
  kernels_avx512().matmul(block, scratch);
}

template <bool with_f16>
void pack_weight(WeightType type, const uint8_t* rows, uint64_t row_bytes, uint32_t n_rows,
                 uint64_t cols, uint8_t* panel) {
  if (!has_pairs<with_f16>(type)) {
    kernels_avx512().pack(type, rows, row_bytes, n_rows, cols, panel);
  } else if (type == WeightType::F16) {
    pack_rounded(rows, row_bytes, n_rows, cols, panel);
  } else {
    pack_pairs(rows, row_bytes, n_rows, cols, panel);
  }
}

template <bool with_f16>
KernelTable make_table() {
  KernelTable table = kernels_avx512();
  table.name = "avx512_bf16";
  table.matmul = multiply<with_f16>;
  table.pack = pack_weight<with_f16>;
  return table;
}

}  // namespace

}  // namespace avx512_bf16

const KernelTable& kernels_avx512_bf16() {
  static const KernelTable table = avx512_bf16::make_table<false>();
  return table;
}

const KernelTable& kernels_avx512_bf16_f16() {
  static const KernelTable table = avx512_bf16::make_table<true>();
  return table;
}

}  // namespace forge::cpu

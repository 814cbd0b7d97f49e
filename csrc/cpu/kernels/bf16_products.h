#pragma once

// Products of BF16 weights with activations rounded to BF16, for processors that multiply such
// numbers. A Unit is what they have:
//
//   kColumns                  adjacent columns of a row in a panel,
//                             [cols / kColumns][row][kColumns]; zeros fill the last of them
//   kTileTokens               maximum number of tokens of a tile
//   base(), finish            the other kernels, and their end of products (product_kernels.h)
//   set_attention(table)      sets the kernels of attention that differ from those of base()
//   Scope                     constructed before the products of a call and destroyed after them
//   round(x, n, out)          rounds n floats; NaN and infinity stay
//   round_token(x, n, t, out) the same for token t of a chunk of n <= kChunk, as `tile` reads it,
//                             then zeros up to a multiple of kColumns
//   copy_token(x, n, t, out)  the same for numbers that round() has written
//   kReadsRounded             true if `tile` reads numbers as round() has written them, in rows of
//                             kRoundedBytes, at most kRoundedSlack of them too many
//   pack_whole                packs as many of n groups of columns as it can; returns their number
//   tile<n_tokens, n_panels>(panels, panel_stride, n_groups, x, from_memory, sums)
//                             sums[t][16 p + row] += the product of n_groups groups of columns of
//                             row `row` of panel p with token t of x, from a multiple of
//                             kTileTokens
//
// Columns are added in an order of their own over chunks of kChunk, and the sums of chunks in
// order, for any number of tokens: the result of a token does not depend on the tokens that it is
// computed together with.

#include "product_kernels.h"

namespace forge::cpu::FORGE_TARGET {

constexpr uint64_t kChunk = kRoundedCols;
constexpr uint32_t kProductPanels = 4;  // their columns of a chunk fit the first-level cache
constexpr uint32_t kProductRows = kProductPanels * kPanelRows;

template <class Unit>
struct Bf16Products {
  // Bytes of a group of columns.
  static constexpr uint64_t kGroup = 2 * Unit::kColumns * kPanelRows;
  static_assert((kMatmulTokens + Unit::kTileTokens) * kChunk * 2 <= kMatmulTileBytes);
  static_assert(kChunk % Unit::kColumns == 0);

  static uint64_t groups_of(uint64_t cols) { return (cols + Unit::kColumns - 1) / Unit::kColumns; }

  // True if tokens are rounded, and follow each other.
  static bool are_rounded(const MatmulToken* tokens, uint32_t n) {
    if (!tokens->halves) return false;
    for (uint32_t i = 1; i < n; ++i) {
      if (tokens[i].halves != tokens->halves + i * kRoundedBytes) return false;
    }
    return true;
  }

  // Writes a chunk of a token as `tile` reads it.
  static void place_token(const MatmulToken& token, uint64_t col, uint64_t n_cols, uint32_t t,
                          uint8_t* x) {
    if (token.halves) {
      Unit::copy_token(token.halves + col / kChunk * token.halves_stride, n_cols, t, x);
    } else {
      Unit::round_token(token.x + col, n_cols, t, x);
    }
  }

  // Multiplies all tokens with n_panels panels from row `row` on.
  template <int n_panels>
  static void multiply_rows(const MatmulBlock& block, uint32_t row, uint8_t* scratch) {
    uint8_t* x = scratch;
    auto* sums = reinterpret_cast<float*>(scratch + kMatmulTileBytes);
    const uint8_t* panels = block.panels + row / kPanelRows * block.panel_bytes;
    memset(sums, 0, block.n_tokens * kProductRows * sizeof(float));
    for (uint64_t col = 0; col < block.cols; col += kChunk) {
      const uint64_t n_cols = smaller(kChunk, block.cols - col);
      for (uint32_t t = 0; t < block.n_tokens; t += Unit::kTileTokens) {
        const uint32_t left = block.n_tokens - t;
        const MatmulToken* tokens = block.tokens + t;
        const uint32_t n = left < Unit::kTileTokens ? left : Unit::kTileTokens;
        const uint8_t* from = x + t * kRoundedBytes;
        if (Unit::kReadsRounded && are_rounded(tokens, n)) {
          from = tokens->halves + col / kChunk * tokens->halves_stride;
        } else {
          for (uint32_t i = 0; i < n; ++i) place_token(tokens[i], col, n_cols, t + i, x);
        }
        with_tile_tokens<Unit::kTileTokens>(left, [&]<int n_tokens>() FORGE_ALWAYS_INLINE {
          Unit::template tile<n_tokens, n_panels>(
              panels + col / Unit::kColumns * kGroup, block.panel_bytes, groups_of(n_cols),
              from, t == 0, sums + t * kProductRows);
        });
      }
    }
    const auto n_rows = static_cast<uint32_t>(smaller(n_panels * kPanelRows, block.n_rows - row));
    for (uint32_t t = 0; t < block.n_tokens; ++t) {
      Unit::finish(block, block.tokens[t], row, n_rows, sums + t * kProductRows);
    }
  }

  static void multiply_panels(const MatmulBlock& block, uint8_t* scratch) {
    [[maybe_unused]] const typename Unit::Scope scope;
    uint32_t row = 0;
    for (; row + kProductRows - kPanelRows < block.n_rows; row += kProductRows) {
      multiply_rows<kProductPanels>(block, row, scratch);
    }
    for (; row < block.n_rows; row += kPanelRows) multiply_rows<1>(block, row, scratch);
  }

  // Missing rows repeat the last one; their results are unused.
  static void pack_panel(const uint8_t* rows, uint64_t row_bytes, uint32_t n_rows, uint64_t cols,
                         uint8_t* out) {
    constexpr uint64_t kBytes = 2 * Unit::kColumns;
    const uint8_t* from[kPanelRows];
    for (uint32_t row = 0; row < kPanelRows; ++row) {
      from[row] = rows + (row < n_rows ? row : n_rows - 1) * row_bytes;
    }
    uint64_t group = Unit::pack_whole(from, cols / Unit::kColumns, out);
    for (; group < groups_of(cols); ++group) {
      const uint64_t left = (cols - group * Unit::kColumns) * 2;
      for (uint32_t row = 0; row < kPanelRows; ++row) {
        uint8_t columns[kBytes] = {};
        memcpy(columns, from[row] + group * kBytes, smaller(kBytes, left));
        memcpy(out + group * kGroup + row * kBytes, columns, kBytes);
      }
    }
  }

  // The same for F16, rounded to BF16, kChunk columns at a time.
  static void pack_rounded(const uint8_t* rows, uint64_t row_bytes, uint32_t n_rows, uint64_t cols,
                           uint8_t* out) {
    alignas(64) uint8_t rounded[kPanelRows][2 * kChunk];
    for (uint64_t col = 0; col < cols; col += kChunk) {
      const uint64_t n_cols = smaller(kChunk, cols - col);
      for (uint32_t row = 0; row < kPanelRows; ++row) {
        uint8_t halves[2 * kChunk] = {};
        memcpy(halves, rows + smaller(row, n_rows - 1) * row_bytes + 2 * col, 2 * n_cols);
        float values[kChunk];
        for (uint64_t i = 0; i < n_cols; i += kLanes) store(values + i, load_f16(halves + 2 * i));
        Unit::round(values, n_cols, rounded[row]);
      }
      pack_panel(rounded[0], sizeof rounded[0], kPanelRows, n_cols,
                 out + col / Unit::kColumns * kGroup);
    }
  }

  // True if weights of a type have panels of BF16.
  template <bool with_f16>
  static bool has_panels(WeightType type) {
    return type == WeightType::BF16 || (with_f16 && type == WeightType::F16);
  }

  template <bool with_f16>
  static void multiply(const MatmulBlock& block, uint8_t* scratch) {
    if (has_panels<with_f16>(block.type)) return multiply_panels(block, scratch);
    Unit::base().matmul(block, scratch);
  }

  template <bool with_f16>
  static void pack_weight(WeightType type, const uint8_t* rows, uint64_t row_bytes, uint32_t n_rows,
                          uint64_t cols, uint8_t* panel) {
    if (!has_panels<with_f16>(type)) {
      Unit::base().pack(type, rows, row_bytes, n_rows, cols, panel);
    } else if (type == WeightType::F16) {
      pack_rounded(rows, row_bytes, n_rows, cols, panel);
    } else {
      pack_panel(rows, row_bytes, n_rows, cols, panel);
    }
  }

  // The base kernels with these products of BF16 weights, and of F16 weights if `with_f16`.
  template <bool with_f16>
  static const KernelTable& table(const char* name) {
    static const KernelTable table = [name] {
      KernelTable made = Unit::base();
      made.name = name;
      made.matmul = multiply<with_f16>;
      made.pack = pack_weight<with_f16>;
      made.rounds = has_panels<with_f16>;
      made.round = Unit::round;
      Unit::set_attention(made);
      return made;
    }();
    return table;
  }
};

}  // namespace forge::cpu::FORGE_TARGET

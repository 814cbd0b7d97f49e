// Packs rows of a file into panels: see panel_layout.h.

#include "../kernel_table.h"
#include "pack_rows.h"
#include "transpose.h"

namespace forge::cpu::FORGE_TARGET {

namespace {

// Groups of 4 columns of a row, as words.
struct RowGroups {
  uint32_t word[8];
};

FORGE_INLINE RowGroups groups_of(RowFields q) {
  RowGroups out;
  memcpy(out.word, &q, sizeof out);
  return out;
}

template <class Destination>
FORGE_INLINE void put(Destination& vector, uint32_t row, uint32_t word) {
  memcpy(vector + 4 * row, &word, 4);
}

FORGE_INLINE void put_fields(Fields8& to, uint32_t row, RowFields q) {
  const RowGroups groups = groups_of(q);
  for (uint32_t g = 0; g < 8; ++g) put(to.bytes[g], row, groups.word[g]);
}

FORGE_INLINE void put_low_nibbles(uint8_t (&low)[4][kGroupBytes], uint32_t row, RowFields q) {
  const Bytes both = (q.low & 15) | q.high << 4;
  uint32_t word[4];
  memcpy(word, &both, sizeof both);
  for (uint32_t i = 0; i < 4; ++i) put(low[i], row, word[i]);
}

// Bits [from, from + bits) of `count` groups from the first on, those of a group next to those of
// the one before.
template <uint32_t bits, uint32_t from, uint32_t count>
FORGE_INLINE uint32_t gather_bits(const RowGroups& groups, uint32_t first) {
  constexpr uint32_t mask = ((1u << bits) - 1) * 0x01010101u;
  uint32_t word = 0;
  for (uint32_t i = 0; i < count; ++i) {
    word |= (groups.word[first + i] >> from & mask) << (bits * i);
  }
  return word;
}

template <uint32_t from>
FORGE_INLINE void put_two_bits(uint8_t (&to)[2][kGroupBytes], uint32_t row,
                               const RowGroups& groups) {
  put(to[0], row, gather_bits<2, from, 4>(groups, 0));
  put(to[1], row, gather_bits<2, from, 4>(groups, 4));
}

FORGE_INLINE void put_fields(Fields4& to, uint32_t row, RowFields q) {
  put_low_nibbles(to.low, row, q);
}
FORGE_INLINE void put_fields(Fields5& to, uint32_t row, RowFields q) {
  put_low_nibbles(to.low, row, q);
  put(to.high, row, gather_bits<1, 4, 8>(groups_of(q), 0));
}
FORGE_INLINE void put_fields(Fields6& to, uint32_t row, RowFields q) {
  put_low_nibbles(to.low, row, q);
  put_two_bits<4>(to.high, row, groups_of(q));
}
FORGE_INLINE void put_fields(Fields2& to, uint32_t row, RowFields q) {
  put_two_bits<0>(to.low, row, groups_of(q));
}
FORGE_INLINE void put_fields(Fields3& to, uint32_t row, RowFields q) {
  put_two_bits<0>(to.low, row, groups_of(q));
  put(to.high, row, gather_bits<1, 2, 8>(groups_of(q), 0));
}

template <class Panel>
FORGE_INLINE auto& fields_of(Panel& panel, uint32_t b) {
  if constexpr (Panel::kBlocks == 1) {
    return panel.fields;
  } else {
    return panel.blocks[b].fields;
  }
}

template <class Block, class Panel>
void pack_blocks(const uint8_t* rows, uint64_t row_bytes, uint32_t n_rows, uint64_t cols,
                 uint8_t* out) {
  auto* panel = reinterpret_cast<Panel*>(out);
  for (uint64_t i = 0; i < cols / Block::elements; ++i, ++panel) {
    for (uint32_t row = 0; row < n_rows; ++row) {
      const Block& block = reinterpret_cast<const Block*>(rows + row * row_bytes)[i];
      set_scales(row, block, *panel);
      for (uint32_t b = 0; b < Panel::kBlocks; ++b) {
        put_fields(fields_of(*panel, b), row, read(block, b));
      }
    }
  }
}

// Transposes [row][column] to [column][row]. Missing rows repeat the last one; their results are
// unused.
template <class Element>
void pack_elements(const uint8_t* rows, uint64_t row_bytes, uint32_t n_rows, uint64_t cols,
                   uint8_t* out) {
  constexpr uint32_t kAtOnce = Squares<Element>::kColumns;
  constexpr uint64_t kColumnBytes = kPanelRows * sizeof(Element);
  const uint8_t* from[kPanelRows];
  for (uint32_t row = 0; row < kPanelRows; ++row) {
    from[row] = rows + (row < n_rows ? row : n_rows - 1) * row_bytes;
  }
  uint64_t col = 0;
  for (; col + kAtOnce <= cols; col += kAtOnce) {
    transpose<Element>(from, col * sizeof(Element), out + col * kColumnBytes);
  }
  for (; col < cols; ++col) {
    for (uint32_t row = 0; row < kPanelRows; ++row) {
      memcpy(out + col * kColumnBytes + row * sizeof(Element), from[row] + col * sizeof(Element),
             sizeof(Element));
    }
  }
}

// Missing rows are zero.
void pack_fp8(const uint8_t* rows, uint64_t row_bytes, uint32_t n_rows, uint64_t cols,
              uint8_t* out) {
  static const BlockFP8 kZeros = {};
  auto* panel = reinterpret_cast<FP8Panel*>(out);
  for (uint64_t i = 0; i < cols / kBlockCols; ++i, ++panel) {
    const uint8_t* from[kPanelRows];
    for (uint32_t row = 0; row < kPanelRows; ++row) {
      const BlockFP8& block =
          row < n_rows ? reinterpret_cast<const BlockFP8*>(rows + row * row_bytes)[i] : kZeros;
      memcpy(&panel->d[row], &block.d, 4);
      panel->d[row] *= 256;
      from[row] = block.qs;
    }
    for (uint32_t col = 0; col < kBlockCols; col += 16) transpose_bytes(from, col, panel->q[col]);
  }
}

}  // namespace

void pack(WeightType type, const uint8_t* rows, uint64_t row_bytes, uint32_t n_rows, uint64_t cols,
          uint8_t* panel) {
  switch (type) {
    case WeightType::F32: return pack_elements<uint32_t>(rows, row_bytes, n_rows, cols, panel);
    case WeightType::F16:
    case WeightType::BF16: return pack_elements<uint16_t>(rows, row_bytes, n_rows, cols, panel);
    case WeightType::FP8: return pack_fp8(rows, row_bytes, n_rows, cols, panel);
#define FORGE_PACK(name)                                                                       \
  case WeightType::name:                                                                       \
    return pack_blocks<Block##name, PanelOf<WeightType::name>>(rows, row_bytes, n_rows, cols,  \
                                                               panel);
    FORGE_PACK(Q4_0)
    FORGE_PACK(Q4_1)
    FORGE_PACK(Q5_0)
    FORGE_PACK(Q5_1)
    FORGE_PACK(Q8_0)
    FORGE_PACK(IQ4_NL)
    FORGE_PACK(MXFP4)
    FORGE_PACK(FP4)
    FORGE_PACK(Q2_K)
    FORGE_PACK(Q3_K)
    FORGE_PACK(Q4_K)
    FORGE_PACK(Q5_K)
    FORGE_PACK(Q6_K)
    FORGE_PACK(IQ4_XS)
#undef FORGE_PACK
    default: return;
  }
}

}  // namespace forge::cpu::FORGE_TARGET

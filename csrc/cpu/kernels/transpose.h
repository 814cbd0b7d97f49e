#pragma once

// Transposes 16 rows of a file into columns, in registers.

#include "simd.h"

namespace forge::cpu::FORGE_TARGET {

constexpr uint32_t kColumnRows = 16;

// The division of 16 rows of elements into squares, each in 16 bytes of kSize registers. A register
// holds as many adjacent squares as it is wide: those of all rows first, then those of further
// columns.
template <class Element>
struct Squares {
  static constexpr uint32_t kSize = 16 / sizeof(Element);
  static constexpr uint32_t kBelow = kColumnRows / kSize;  // squares that 16 rows take
  static constexpr uint32_t kWidth = kLanes / 4;           // squares that a register takes
  static constexpr uint32_t kPasses = kWidth < kBelow ? kBelow / kWidth : 1;
  static constexpr uint32_t kAcross = kWidth < kBelow ? 1 : kWidth / kBelow;
  static constexpr uint32_t kColumns = kSize * kAcross;
};

// Transposes each square: log2(kSize) times, the first half of the registers is interleaved with
// the second.
template <class Element>
FORGE_INLINE void transpose_squares(ByteVec (&rows)[Squares<Element>::kSize]) {
  constexpr uint32_t n = Squares<Element>::kSize;
  FORGE_UNROLL(3)
  for (uint32_t size = 1; size < n; size *= 2) {
    ByteVec next[n];
    FORGE_UNROLL(4)
    for (uint32_t i = 0; i < n / 2; ++i) {
      next[2 * i] = interleave_low<sizeof(Element)>(rows[i], rows[i + n / 2]);
      next[2 * i + 1] = interleave_high<sizeof(Element)>(rows[i], rows[i + n / 2]);
    }
    FORGE_UNROLL(8)
    for (uint32_t i = 0; i < n; ++i) rows[i] = next[i];
  }
}

// out[column][row] = element `column` of each of 16 rows, for kColumns columns, which are `stride`
// elements apart. Rows may have any alignment.
template <class Element>
FORGE_INLINE void transpose(const uint8_t* const (&rows)[kColumnRows], uint64_t offset,
                            uint8_t* out, uint64_t stride = kColumnRows) {
  using S = Squares<Element>;
  FORGE_UNROLL(4)
  for (uint32_t pass = 0; pass < S::kPasses; ++pass) {
    const uint32_t first = pass * S::kWidth * S::kSize;  // row
    ByteVec squares[S::kSize];
    FORGE_UNROLL(8)
    for (uint32_t i = 0; i < S::kSize; ++i) {
      const uint8_t* at[S::kWidth];
      FORGE_UNROLL(4)
      for (uint32_t lane = 0; lane < S::kWidth; ++lane) {
        const uint32_t row = first + lane % S::kBelow * S::kSize + i;
        at[lane] = rows[row] + offset + lane / S::kBelow * 16;
      }
      squares[i] = load_lanes(at);
    }
    transpose_squares<Element>(squares);
    constexpr size_t kBytes = sizeof(ByteVec) / S::kAcross;  // of a column
    FORGE_UNROLL(8)
    for (uint32_t i = 0; i < S::kSize; ++i) {
      FORGE_UNROLL(2)
      for (uint32_t across = 0; across < S::kAcross; ++across) {
        const uint32_t column = across * S::kSize + i;
        memcpy(out + (column * stride + first) * sizeof(Element),
               reinterpret_cast<const uint8_t*>(&squares[i]) + across * kBytes, kBytes);
      }
    }
  }
}

// out[column][row] = byte offset + column of each of 16 rows, for 16 columns: `transpose` takes
// more at once than a block of bytes has.
FORGE_INLINE void transpose_bytes(const uint8_t* const (&rows)[kColumnRows], uint64_t offset,
                                  uint8_t* out) {
  Bytes lines[16];
  for (uint32_t i = 0; i < 16; ++i) lines[i] = load_bytes(rows[i] + offset);
  FORGE_UNROLL(4)
  for (int round = 0; round < 4; ++round) {
    Bytes next[16];
    FORGE_UNROLL(8)
    for (uint32_t i = 0; i < 8; ++i) {
      next[2 * i] = __builtin_shufflevector(lines[i], lines[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4,
                                            20, 5, 21, 6, 22, 7, 23);
      next[2 * i + 1] = __builtin_shufflevector(lines[i], lines[i + 8], 8, 24, 9, 25, 10, 26, 11,
                                                27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    FORGE_UNROLL(16)
    for (uint32_t i = 0; i < 16; ++i) lines[i] = next[i];
  }
  memcpy(out, lines, sizeof lines);
}

}  // namespace forge::cpu::FORGE_TARGET

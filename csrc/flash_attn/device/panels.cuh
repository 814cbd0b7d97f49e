// Tiles in shared memory, in the layout that TMA writes and wgmma reads: consecutive panels of 64
// columns (128 bytes a row; 32 columns and 64 bytes for head_dim 96), each with all rows of the
// tile.
//
//              panel 0                 panel 1
//   row 0      columns 0 .. 63         columns 64 .. 127
//   row 1      ...                     ...
//   ...
//
// Within a panel the hardware swizzles 16-byte chunks by bits of their address, with a pattern that
// repeats after eight rows. A panel therefore starts at a multiple of 1024 bytes (512).
//
// A descriptor locates an operand of wgmma (PTX ISA, "Matrix descriptor format"):
//
//   bits  0-13  address / 16                     32-45  stride offset / 16
//        16-29  leading offset / 16              62-63  swizzle: 1 = 128 bytes, 2 = 64 bytes
//
// The address and the leading offset are the low word, which is computed once for each tile: the
// operands of products differ from it by constants.
//
// - Q and K, with contiguous depth: the stride offset is the distance between groups of eight rows.
//   The depth of one product, 16 elements, is 32 bytes of a row: the next product starts 32 bytes
//   further on.
// - V, with contiguous columns and rows as depth: the leading offset is the distance between
//   panels, the stride offset the distance between groups of eight keys. The next product starts 16
//   rows further on.
#pragma once

#include "device_sm90.cuh"

namespace flash_attn {

template <int kPanel, int kRows>
struct PanelTile {
  static constexpr int kRowBytes = 2 * kPanel;
  static constexpr int kPanelBytes = kRows * kRowBytes;
  static constexpr uint64_t kSwizzle = kPanel == 64 ? 1 : 2;
  static_assert(kPanelBytes % (8 * kRowBytes) == 0);

  // Offset in bytes of a row's 16-byte chunk, which counts through all panels.
  FA_DEVICE static int chunk_offset(int row, int chunk) {
    constexpr int kChunks = kRowBytes / 16;
    const int key = kPanel == 64 ? row % 8 : row / 2 % 4;
    return chunk / kChunks * kPanelBytes + row * kRowBytes + (chunk % kChunks ^ key) * 16;
  }

  // Low word for the rows from first_row on of a tile with contiguous depth.
  FA_DEVICE static uint32_t depth_contiguous(const void *tile, int first_row) {
    return low_word(tile, first_row * kRowBytes, 16);
  }
  // Depth 16 k .. 16 k + 15 of a tile with contiguous depth.
  FA_DEVICE static uint64_t depth_step(uint32_t low_word, int k) {
    constexpr int kStepsEach = kPanel / 16;
    return descriptor(low_word, k / kStepsEach * kPanelBytes + k % kStepsEach * 32);
  }

  // Low word for a tile of V.
  FA_DEVICE static uint32_t columns_contiguous(const void *tile) {
    return low_word(tile, 0, kPanelBytes);
  }
  // Rows 16 k .. 16 k + 15 of all columns of a tile of V.
  FA_DEVICE static uint64_t row_step(uint32_t low_word, int k) {
    return descriptor(low_word, 16 * k * kRowBytes);
  }

 private:
  FA_DEVICE static uint32_t low_word(const void *tile, int offset, int leading_bytes) {
    const uint32_t address = shared_address(tile) + static_cast<uint32_t>(offset);
    return (address & 0x3ffff) >> 4 | static_cast<uint32_t>(leading_bytes >> 4) << 16;
  }
  FA_DEVICE static uint64_t descriptor(uint32_t low_word, int offset) {
    constexpr uint64_t kHighWord = 8 * kRowBytes >> 4 | kSwizzle << 30;
    return kHighWord << 32 | (low_word + static_cast<uint32_t>(offset >> 4));
  }
};

}  // namespace flash_attn

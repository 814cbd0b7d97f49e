// Tile shapes of the decode kernel.
//
// Decoding is bound by memory, so bytes in flight matter. A block keeps kSlots - 1 tiles of K or V
// in flight (48 KiB with head_dim 128), and kBlocks blocks fit on a multiprocessor. Little's
// law requires about 25 bytes/ns times 0.7 us, 18 KiB per multiprocessor, on an H100.
//
//   head_dim   slots   KiB of the ring
//      64        4        32
//      96        4        48
//     128        4        64
//     192        3        72
//     256        2        64
//
// Tiles of Q8_0 have about half the bytes, so a ring of four has 17 to 68 KiB, and a block with
// head_dim 128 keeps 25 KiB in flight.
#pragma once

namespace flash_attn {

inline constexpr int kDecodeKeys = 64;
inline constexpr int kDecodeWarps = 4;
// With fewer tiles per part, combining parts would cost more than splitting saves.
inline constexpr int kMinPartTiles = 4;
inline constexpr int kMaxSplits = 128;

// A block's four warps divide its rows and the keys of each tile: kRowWarps warps have different
// rows, 16 each; warps with the same rows have different keys.
//
//   kRowWarps = 1: 16 rows, 16 keys per warp   each key is read by one warp; for one query of up
//                                              to 16 grouped heads
//   kRowWarps = 4: 64 rows, all keys per warp  more rows per block
//
// Each warp converts the keys of Q8_0 that it reads, so these always have the first shape.
template <int kHeadDim, int row_warps, bool is_q8 = false>
struct DecodeTile {
  static_assert(!is_q8 || row_warps == 1);
  static constexpr int kRowWarps = row_warps;
  static constexpr int kKeyWarps = kDecodeWarps / kRowWarps;
  static constexpr int kRows = 16 * kRowWarps;
  static constexpr int kKeysEach = kDecodeKeys / kKeyWarps;
  static constexpr int kThreads = 32 * kDecodeWarps;
  static constexpr int kSlots = kHeadDim <= 128 || is_q8 ? 4 : kHeadDim == 192 ? 3 : 2;
  // 16-bit elements of a row of keys or values, and of its factors.
  static constexpr int kStored = is_q8 ? kHeadDim / 2 : kHeadDim;
  static constexpr int kScales = is_q8 ? kHeadDim / 32 : 0;
  // Rows of results in shared memory are padded by eight numbers to avoid bank conflicts.
  static constexpr int kResultStride = kHeadDim + 8;
  static constexpr int kResults = kKeyWarps * kRows;

  static constexpr int kSharedBytes =
      (kRows * kHeadDim + kSlots * kDecodeKeys * (kStored + kScales)) * 2;
  // Blocks per multiprocessor that the registers must allow.
  static constexpr int kBlocks = kRowWarps == 1 && kHeadDim <= 128 ? 3 : 2;
  // With a mask, whose addresses take registers that the conversion of Q8_0 needs.
  static constexpr int kMaskedBlocks = is_q8 && kHeadDim == 128 ? 2 : kBlocks;
  static_assert(kResults * (kResultStride + 1) * 4 <= kSharedBytes);
  static_assert(kSharedBytes <= 96 * 1024);
};

template <class Tile>
constexpr int decode_blocks(bool has_mask) {
  return has_mask ? Tile::kMaskedBlocks : Tile::kBlocks;
}

}  // namespace flash_attn

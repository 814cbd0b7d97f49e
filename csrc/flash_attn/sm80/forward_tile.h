// Tile shapes of the forward kernel on SM80 for each head_dim.
//
// - Shared memory: Q and kSlots tiles of K and V, at most 96 KiB, available on all devices from
//   SM80 on.
// - Registers: a warp of 16 r rows keeps r * kHeadDim / 2 for O and r * kKeys / 2 for S; about 60
//   are for operands, addresses and the softmax. The limit is 255. Longer tiles rescale O less
//   often, so that head_dim 64 has 96 keys.
// - Each right operand of mma.sync is read from shared memory, 256 bytes for 2048 multiply-adds of
//   a 16-row tile. At 128 bytes a cycle this takes as long as the products themselves, so warps
//   have 32 rows and use each operand twice, unless O leaves too few registers.
//
//   head_dim   rows  keys  slots   KiB   registers for O + S
//         64    128    96      3    52    64 + 96
//         96    128    64      4    72    96 + 64
//        128    128    64      3    80   128 + 64
//        192    128    64      2    96    96 + 32
//        256    128    32      2    96   128 + 16
//
// With a mask, whose entries of a tile are all in flight at once and take as many registers as S,
// head_dim 64, 96 and 128 have 32 keys and four slots.
#pragma once

namespace flash_attn {

template <int rows, int keys, int warps, int slots, int blocks>
struct ForwardShape {
  static constexpr int kRows = rows;
  static constexpr int kKeys = keys;
  static constexpr int kWarps = warps;
  static constexpr int kThreads = 32 * warps;
  static constexpr int kSlots = slots;
  // Blocks per multiprocessor that the registers must allow.
  static constexpr int kBlocks = blocks;
};

template <int kHeadDim, bool kMasked = false>
struct ForwardTile : ForwardTile<kHeadDim, false> {};

template <>
struct ForwardTile<64, false> : ForwardShape<128, 96, 4, 3, 2> {};
template <>
struct ForwardTile<96, false> : ForwardShape<128, 64, 4, 4, 2> {};
template <>
struct ForwardTile<128, false> : ForwardShape<128, 64, 4, 3, 2> {};
template <>
struct ForwardTile<192, false> : ForwardShape<128, 64, 8, 2, 1> {};
template <>
struct ForwardTile<256, false> : ForwardShape<128, 32, 8, 2, 1> {};

template <>
struct ForwardTile<64, true> : ForwardShape<128, 32, 4, 4, 2> {};
template <>
struct ForwardTile<96, true> : ForwardShape<128, 32, 4, 4, 2> {};
template <>
struct ForwardTile<128, true> : ForwardShape<128, 32, 4, 4, 2> {};

// The dynamic shared memory of the kernel, in bytes.
template <int kHeadDim, bool kMasked>
constexpr int forward_shared_bytes() {
  using Tile = ForwardTile<kHeadDim, kMasked>;
  constexpr int kBytes = (Tile::kRows + Tile::kSlots * Tile::kKeys) * kHeadDim * 2;
  static_assert(kBytes <= 96 * 1024);
  return kBytes;
}

}  // namespace flash_attn

// Tile shapes of the forward kernel on SM90 for each head_dim. Capping scores takes more registers,
// which head_dim 64 lacks.
//
// - A block has one producer warpgroup and kConsumers consumers of 64 rows each.
// - Shared memory, of 227 KiB: Q, and kStages tiles each of K and V.
// - Registers: a consumer thread keeps kHeadDim / 2 for O, kKeys / 2 for S and kKeys / 4 for P, and
//   about 40 more. Three warpgroups share 512 registers a lane as 2 * 232 + 40, four as 3 * 160 +
//   32.
// - wgmma reads Q and K from shared memory for S. A 64-row product over 16 elements of depth takes
//   kKeys / 2 cycles and reads 2 KiB of Q and kKeys * 32 bytes of K. At 128 bytes a cycle, the
//   tensor cores stay busy if kKeys is more than 64. With head_dim 256 there is room for 80.
// - A multiprocessor computes 4096 operations of products and 16 exponentials per cycle. A tile of
// a
//   warpgroup takes kHeadDim * kKeys / 16 cycles of products and 4 * kKeys of exponentials. These
//   are equal for head_dim 64, where a third consumer helps to keep both units busy; from 128 on
//   the products are the bound.
//
//   head_dim   consumers   rows   keys   KiB   registers for O + S + P
//         64       3        192    128    88    32 + 64 + 32 of 160
//     capped       3        192    112    80    32 + 56 + 28
//         96       2        128    128   120    48 + 64 + 32 of 232
//        128       2        128    128   160    64 + 64 + 32
//        192       2        128    112   216    96 + 56 + 28
//        256       2        128     80   224   128 + 40 + 20
//
// E4M3 has the same rows, and 128 keys, or 64 with head_dim 256: their bytes are a row of V
// transposed, 128 or 64 bytes wide. Weights take a register for four keys, and V transposed another
// ring of tiles: 60, 112, 168 and 128 KiB.
#pragma once

namespace flash_attn {

template <int head_dim, int consumers, int keys, bool is_e4m3 = false>
struct Sm90Shape {
  static constexpr bool kIsE4m3 = is_e4m3;
  static constexpr int kHeadDim = head_dim;
  static constexpr int kConsumers = consumers;
  static constexpr int kRows = 64 * consumers;
  static constexpr int kKeys = keys;
  static constexpr int kStages = 2;
  static constexpr int kThreads = 128 * (consumers + 1);
  static constexpr int kProducerRegisters = consumers == 2 ? 40 : 32;
  static constexpr int kConsumerRegisters = consumers == 2 ? 232 : 160;
  // Consumers issue products in turns. From 192 on, the products of one tile take so much longer
  // than its exponentials that waiting for a turn costs more than it orders.
  // Products of E4M3 take half as long, and at 64 as long as handing a turn on.
  static constexpr bool kTurns = is_e4m3 ? head_dim >= 128 : head_dim <= 128;
  // 16-bit elements of a row: numbers, or pairs of E4M3.
  static constexpr int kColumns = is_e4m3 ? head_dim / 2 : head_dim;
  // Columns per panel: 128 bytes, or 64 if the columns are not a multiple of 64.
  static constexpr int kPanel = kColumns % 64 == 0 ? 64 : 32;
  static constexpr int kPanels = kColumns / kPanel;
  static_assert(kColumns % kPanel == 0);
  static constexpr int kQueryElements = kRows * kColumns;
  static constexpr int kKeyElements = keys * kColumns;
  // K and V; of E4M3 also V transposed.
  static constexpr int kRings = is_e4m3 ? 3 : 2;
  static constexpr int kTileBytes = (kQueryElements + kRings * kStages * kKeyElements) * 2;
  // Includes space for work and barriers after the tiles.
  static constexpr int kSharedBytes = kTileBytes + 256;
  static_assert(kSharedBytes <= 227 * 1024);
  // Maximum keys per copy of K or V when they lie in pages: a power of two that divides a tile.
  static constexpr int kPagedKeys = keys & -keys;
};

template <int kHeadDim, bool kCapped, bool kIsE4m3 = false>
struct Sm90Tile : Sm90Tile<kHeadDim, false, kIsE4m3> {};

template <int kHeadDim>
struct Sm90Tile<kHeadDim, false, true>
    : Sm90Shape<kHeadDim, kHeadDim == 64 ? 3 : 2, kHeadDim == 256 ? 64 : 128, true> {};
template <>
struct Sm90Tile<64, false> : Sm90Shape<64, 3, 128> {};
template <>
struct Sm90Tile<64, true> : Sm90Shape<64, 3, 112> {};
template <>
struct Sm90Tile<96, false> : Sm90Shape<96, 2, 128> {};
template <>
struct Sm90Tile<128, false> : Sm90Shape<128, 2, 128> {};
template <>
struct Sm90Tile<192, false> : Sm90Shape<192, 2, 112> {};
template <>
struct Sm90Tile<256, false> : Sm90Shape<256, 2, 80> {};

}  // namespace flash_attn

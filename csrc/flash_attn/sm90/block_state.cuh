// State shared by the warpgroups of a block: tiles, barriers, and the work that the producer hands
// to the consumers.
#pragma once

#include "core/key_window.cuh"
#include "core/schedule.cuh"
#include "device/device.cuh"
#include "device/panels.cuh"
#include "device/ring.cuh"
#include "sm90/forward_tile.h"

namespace flash_attn {

// Arguments of the kernel. Tensor maps are read in place, from the parameters.
struct Sm90ForwardArgs {
  ForwardArgs forward;
  E4m3Args e4m3;
  TensorMap q;
  TensorMap k;
  TensorMap v;
  int32_t *claimed;    // tiles that blocks have claimed after their first; null: each has only one
  int32_t keys_each;   // keys per copy
  int32_t clear_tail;  // 1: memory after a sequence's last key may hold anything, not only zeros
};

// Warps of the producer's warpgroup that transpose tiles of V of E4M3.
inline constexpr int kTransposers = 3;

// One tile of query rows, decoded by the producer.
struct TileWork {
  Sequence sequence;
  int head;        // negative: no work is left
  int first_row;
  KeyTiles tiles;  // of keys that any of the rows sees
  KeyTiles whole;  // tiles of which every row sees every key
};

template <class T, class Tile>
struct BlockState {
  using QueryPanels = PanelTile<Tile::kPanel, Tile::kRows>;
  using KeyPanels = PanelTile<Tile::kPanel, Tile::kKeys>;
  // V transposed: rows are its columns, with one byte for each key.
  using TransposedPanels = PanelTile<Tile::kIsE4m3 ? Tile::kKeys / 2 : 64, Tile::kHeadDim>;

  static constexpr int kWorkStages = 2;
  struct Control {
    TileWork work[kWorkStages];
    StageBarriers<kWorkStages> works;
    StageBarriers<1> q;
    StageBarriers<Tile::kStages> k;
    StageBarriers<Tile::kStages> v;
    StageBarriers<Tile::kStages> transposed;
    Barrier tail;
  };
  static_assert(sizeof(Control) <= Tile::kSharedBytes - Tile::kTileBytes);

  T *const tiles = reinterpret_cast<T *>(dynamic_shared());
  Control &control = *reinterpret_cast<Control *>(dynamic_shared() + Tile::kTileBytes);

  FA_DEVICE T *q() const { return tiles; }
  FA_DEVICE T *k(int stage) const {
    return tiles + Tile::kQueryElements + stage * Tile::kKeyElements;
  }
  FA_DEVICE T *v(int stage) const { return k(Tile::kStages + stage); }
  FA_DEVICE T *transposed(int stage) const { return v(Tile::kStages + stage); }

  // The ring from which consumers take values.
  FA_DEVICE StageBarriers<Tile::kStages> &values() const {
    return Tile::kIsE4m3 ? control.transposed : control.v;
  }

  // Must be called by one thread, before a barrier of the block.
  FA_DEVICE void init() const {
    // Each consumer warp arrives once.
    constexpr int kConsumerArrivals = 4 * Tile::kConsumers;
    constexpr int kHelpers = Tile::kIsE4m3 ? kTransposers : 0;
    control.works.init(kConsumerArrivals + kHelpers);
    control.q.init(kConsumerArrivals);
    control.k.init(kConsumerArrivals);
    control.v.init(Tile::kIsE4m3 ? kHelpers : kConsumerArrivals);
    if constexpr (Tile::kIsE4m3) control.transposed.init(kConsumerArrivals, kHelpers);
    barrier_init(control.tail, 1);
    barrier_init_fence();
  }
};

}  // namespace flash_attn

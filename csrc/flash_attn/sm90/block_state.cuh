// State shared by the warpgroups of a block: tiles, barriers, and the work that the producer hands
// to the consumers.
#pragma once

#include "core/key_window.cuh"
#include "core/schedule.cuh"
#include "device/device_sm90.cuh"
#include "sm90/forward_tile.h"
#include "sm90/panels.cuh"

namespace flash_attn {

/// Arguments of the kernel. Tensor maps are read in place, from the parameters.
struct Sm90ForwardArgs {
  ForwardArgs forward;
  TensorMap q;
  TensorMap k;
  TensorMap v;
  int32_t *claimed;    // tiles that blocks have claimed after their first; null: each has only one
  int32_t keys_each;   // keys per copy
  int32_t clear_tail;  // 1: memory after a sequence's last key may hold anything, not only zeros
};

/// A ring of stages: the producer fills them, consumers empty them.
template <int kStages>
struct StageBarriers {
  Barrier full[kStages];
  Barrier empty[kStages];
};

/// Counts the tiles that passed through a ring, which gives the stage and phase of the next tile.
template <int kStages>
struct StageCounter {
  int count = 0;

  FA_DEVICE int stage() const { return count % kStages; }
  FA_DEVICE int parity() const { return count / kStages & 1; }
};

/// One tile of query rows, decoded by the producer.
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

  static constexpr int kWorkStages = 2;
  struct Control {
    TileWork work[kWorkStages];
    StageBarriers<kWorkStages> works;
    StageBarriers<1> q;
    StageBarriers<Tile::kStages> k;
    StageBarriers<Tile::kStages> v;
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

  /// Must be called by one thread, before a barrier of the block.
  FA_DEVICE void init() const {
    // Each consumer warp arrives once.
    constexpr int kConsumerArrivals = 4 * Tile::kConsumers;
    init_ring(control.works, kConsumerArrivals);
    init_ring(control.q, kConsumerArrivals);
    init_ring(control.k, kConsumerArrivals);
    init_ring(control.v, kConsumerArrivals);
    barrier_init(control.tail, 1);
    barrier_init_fence();
  }

 private:
  template <int kStages>
  FA_DEVICE static void init_ring(StageBarriers<kStages> &ring, int consumer_arrivals) {
    for (int i = 0; i < kStages; i++) {
      barrier_init(ring.full[i], 1);
      barrier_init(ring.empty[i], consumer_arrivals);
    }
  }
};

}  // namespace flash_attn

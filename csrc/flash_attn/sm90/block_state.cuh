// State shared by the warpgroups of a block: tiles, barriers, and the sequence of work.
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

template <class T, int kHeadDim>
struct BlockState {
  using Tile = Sm90Tile<kHeadDim>;
  using QueryPanels = PanelTile<Tile::kPanel, Tile::kRows>;
  using KeyPanels = PanelTile<Tile::kPanel, Tile::kKeys>;

  struct Barriers {
    StageBarriers<1> q;
    StageBarriers<Tile::kStages> k;
    StageBarriers<Tile::kStages> v;
    Barrier tail;
  };
  static_assert(sizeof(Barriers) <= Tile::kSharedBytes - Tile::kTileBytes);

  T *const tiles = reinterpret_cast<T *>(dynamic_shared());
  Barriers &barriers = *reinterpret_cast<Barriers *>(dynamic_shared() + Tile::kTileBytes);

  FA_DEVICE T *q() const { return tiles; }
  FA_DEVICE T *k(int stage) const {
    return tiles + Tile::kQueryElements + stage * Tile::kKeyElements;
  }
  FA_DEVICE T *v(int stage) const { return k(Tile::kStages + stage); }

  /// Must be called by one thread, before a barrier of the block.
  FA_DEVICE void init() const {
    // Each consumer warp arrives once.
    constexpr int kConsumerArrivals = 4 * Tile::kConsumers;
    init_ring(barriers.q, kConsumerArrivals);
    init_ring(barriers.k, kConsumerArrivals);
    init_ring(barriers.v, kConsumerArrivals);
    barrier_init(barriers.tail, 1);
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

/// One tile of query rows, for producer and consumers.
template <int kHeadDim>
struct ForwardWork {
  ScheduledTile place;
  Sequence sequence;
  KeyWindow window;
  int first_row;
  int last_row;
  KeyTiles tiles;

  FA_DEVICE ForwardWork(const ForwardArgs &args, int number)
      : place(scheduled_tile(args, number)),
        sequence(args.query, args.kv, place.batch),
        window(args.score, sequence),
        first_row(place.row_tile * Sm90Tile<kHeadDim>::kRows),
        last_row(first_row + Sm90Tile<kHeadDim>::kRows - 1),
        tiles{0, 0} {
    if (last_row >= sequence.n_queries) last_row = sequence.n_queries - 1;
    if (exists()) tiles = window.template tiles<Sm90Tile<kHeadDim>::kKeys>(first_row, last_row);
  }

  /// False for tiles beyond a short sequence: the grid is shaped for the longest one.
  FA_DEVICE bool exists() const { return first_row < sequence.n_queries; }
  FA_DEVICE bool sees_keys() const { return tiles.first < tiles.end; }
};

}  // namespace flash_attn

// What the warpgroups of a block share: tiles, barriers, and the sequence of their work.
#pragma once

#include "core/key_window.cuh"
#include "core/schedule.cuh"
#include "device/device_sm90.cuh"
#include "sm90/forward_tile.h"
#include "sm90/panels.cuh"

namespace flash_attn {

/// Arguments of the kernel. Tensor maps are read where they lie, in the parameters.
struct Sm90ForwardArgs {
  ForwardArgs forward;
  TensorMap q;
  TensorMap k;
  TensorMap v;
  int32_t keys_each;   // keys that one copy takes
  int32_t clear_tail;  // what follows a sequence's last key may be anything, not zeros
};

/// A ring of stages: the producer fills them, consumers empty them.
template <int kStages>
struct StageBarriers {
  Barrier full[kStages];
  Barrier empty[kStages];
};

/// Counts the tiles that went through a ring, and so knows the stage and the phase of the next.
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

  /// To be called by one thread, before a barrier of the block.
  FA_DEVICE void init() const {
    // Consumers arrive once a warp.
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

/// One tile of query rows, as producer and consumers both see it.
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

  /// The grid is made for the longest sequence; others have fewer tiles.
  FA_DEVICE bool exists() const { return first_row < sequence.n_queries; }
  FA_DEVICE bool sees_keys() const { return tiles.first < tiles.end; }
};

}  // namespace flash_attn

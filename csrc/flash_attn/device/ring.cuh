// A ring of tiles in shared memory, between a producer that copies them and consumers.
#pragma once

#include "device_sm90.cuh"

namespace flash_attn {

// A ring of stages: the producer fills them, consumers empty them.
template <int kStages>
struct StageBarriers {
  Barrier full[kStages];
  Barrier empty[kStages];

  // Must be called by one thread, before barrier_init_fence and a barrier of the block.
  FA_DEVICE void init(int consumer_arrivals, int producer_arrivals = 1) {
    for (int i = 0; i < kStages; i++) {
      barrier_init(full[i], producer_arrivals);
      barrier_init(empty[i], consumer_arrivals);
    }
  }
};

// Counts the tiles that passed through a ring, which gives the stage and phase of the next tile.
template <int kStages>
struct StageCounter {
  int count = 0;

  FA_DEVICE int stage() const { return count % kStages; }
  FA_DEVICE int parity() const { return count / kStages & 1; }
};

}  // namespace flash_attn

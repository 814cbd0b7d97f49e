// FlashAttention forward for SM90 with specialized warps. One warp starts TMA copies of tiles, and
// consumers multiply the tiles with wgmma; mbarriers synchronize both. Blocks are persistent and
// take tiles of query rows until none is left, so that copies for the next tile begin before the
// last one is written.
#pragma once

#include "sm90/consumer.cuh"
#include "sm90/producer.cuh"

namespace flash_attn {

template <class T, int kHeadDim>
FA_KERNEL FA_LAUNCH_BOUNDS(Sm90Tile<kHeadDim>::kThreads, 1)
    forward_sm90(FA_GRID_CONSTANT Sm90ForwardArgs args) {
  using Tile = Sm90Tile<kHeadDim>;
  const BlockState<T, kHeadDim> state;
  const int warp = warp_uniform(thread_index() / 32);
  if (thread_index() == 0) {
    prefetch_tensor_map(args.q);
    prefetch_tensor_map(args.k);
    prefetch_tensor_map(args.v);
    state.init();
  }
  block_barrier();

  const int n_tiles = scheduled_tiles(args.forward);
  if (warp < 4) {
    release_registers<Tile::kProducerRegisters>();
    if (warp != 0) return;
    Producer<T, kHeadDim> producer(args, state);
    for (BlockTurns turns; turns.place() < n_tiles; turns.next()) {
      const ForwardWork<kHeadDim> work(args.forward, turns.place());
      if (work.exists() && work.sees_keys()) producer.load(work);
    }
  } else {
    take_registers<Tile::kConsumerRegisters>();
    Consumer<T, kHeadDim> consumer(args, state, warp / 4 - 1);
    for (BlockTurns turns; turns.place() < n_tiles; turns.next()) consumer.compute(turns.place());
  }
}

}  // namespace flash_attn

// FlashAttention forward for SM90 with specialized warps. One warp starts TMA copies of tiles, and
// consumers multiply the tiles with wgmma; mbarriers synchronize both. Blocks are persistent and
// take tiles of query rows until none is left, so that copies for the next tile begin before the
// last one is written. Inputs of E4M3 are read as pairs; Transposer turns their values.
#pragma once

#include "sm90/consumer.cuh"
#include "sm90/producer.cuh"
#include "sm90/transposer.cuh"

namespace flash_attn {

template <class T, int kHeadDim, bool kCapped>
using TileOf = Sm90Tile<kHeadDim, kCapped, std::is_same_v<T, e4m3_pair>>;

template <class T, int kHeadDim, bool kCapped>
FA_KERNEL FA_LAUNCH_BOUNDS((TileOf<T, kHeadDim, kCapped>::kThreads), 1)
    forward_sm90(FA_GRID_CONSTANT Sm90ForwardArgs args) {
  using Tile = TileOf<T, kHeadDim, kCapped>;
  const BlockState<T, Tile> state;
  const int warp = warp_uniform(thread_index() / 32);
  if (thread_index() == 0) {
    prefetch_tensor_map(args.q);
    if (args.forward.kv.seqlen > 0) {
      prefetch_tensor_map(args.k);
      prefetch_tensor_map(args.v);
    }
    state.init();
  }
  block_barrier();

  if (warp < 4) {
    release_registers<Tile::kProducerRegisters>();
    if (warp == 0) Producer<T, Tile>(args, state).run();
    if constexpr (Tile::kIsE4m3) {
      if (warp > 0) Transposer<T, Tile>(state, warp - 1).run();
    }
  } else {
    take_registers<Tile::kConsumerRegisters>();
    Consumer<T, Tile, kCapped>(args, state, warp / 4 - 1).run();
  }
}

}  // namespace flash_attn

// Transposes tiles of V of E4M3: wgmma reads operands of eight bits with contiguous depth, here
// keys. Three warps of the producer's warpgroup do so (FlashAttention-3, section 3.3).
//
// ldmatrix and stmatrix move pairs of bytes. A block of 32 keys and 16 columns is loaded
// transposed: of the block's eight pairs of columns, lane l has pair l / 4 of keys 2 (l % 4) and
// + 1 of each eight. The bytes of even columns are one row of the result, those of odd columns
// another:
//
//   keys           0  1    8  9   of lane 0,   2  3   10 11   of lane 1, ...
//   even column    a  b    c  d                e  f    g  h
//
// So the 16 bytes of a row hold keys 0, 1, 8, 9, 2, 3, 10, 11, ...: the order in which consumers
// have weights (E4m3Weights).
#pragma once

#include "sm90/block_state.cuh"

namespace flash_attn {

template <class T, class Tile>
class Transposer {
 public:
  using State = BlockState<T, Tile>;

  FA_DEVICE Transposer(const State &state, int number)
      : state_(state), number_(number), lane_(thread_index() % 32) {}

  FA_DEVICE void run() {
    for (;; works_.count++) {
      const int stage = works_.stage();
      barrier_wait(state_.control.works.full[stage], works_.parity());
      const TileWork &work = state_.control.work[stage];
      const KeyTiles tiles = work.tiles;
      const bool is_last = work.head < 0;
      warp_barrier();
      if (is_last) return;
      release(state_.control.works.empty[stage]);
      for (int tile = tiles.first; tile < tiles.end; tile++) transpose();
    }
  }

 private:
  using From = typename State::KeyPanels;
  using To = typename State::TransposedPanels;

  // Transposes the next tile of V.
  FA_DEVICE void transpose() {
    const int stage = values_.stage();
    auto &from = state_.control.v;
    auto &to = state_.control.transposed;
    barrier_wait(from.full[stage], values_.parity());
    barrier_wait(to.empty[stage], values_.parity() ^ 1);
    char *const values = reinterpret_cast<char *>(state_.v(stage));
    char *const transposed = reinterpret_cast<char *>(state_.transposed(stage));
    constexpr int kChunks = Tile::kHeadDim / 16, kBlocks = Tile::kKeys / 32 * kChunks;
#pragma unroll 2
    for (int block = number_; block < kBlocks; block += kTransposers) {
      const int chunk = block % kChunks, keys = block / kChunks;
      uint32_t pairs[4];
      load_matrices_transposed(pairs, values + From::chunk_offset(32 * keys + lane_, chunk));
      const uint32_t rows[4] = {
          every_other_byte<0>(pairs[0], pairs[1]), every_other_byte<1>(pairs[0], pairs[1]),
          every_other_byte<0>(pairs[2], pairs[3]), every_other_byte<1>(pairs[2], pairs[3])};
      const int column = 16 * chunk + 2 * (lane_ % 8) + lane_ / 8 % 2;
      store_matrices(transposed + To::chunk_offset(column, 2 * keys + lane_ / 16), rows);
    }
    async_proxy_fence();
    warp_barrier();
    release(to.full[stage]);
    release(from.empty[stage]);
    values_.count++;
  }

  FA_DEVICE void release(Barrier &barrier) const {
    if (lane_ == 0) barrier_arrive(barrier);
  }

  const State &state_;
  const int number_;
  const int lane_;
  StageCounter<State::kWorkStages> works_;
  StageCounter<Tile::kStages> values_;
};

}  // namespace flash_attn

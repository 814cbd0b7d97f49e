// FlashAttention-2 forward for SM80: a block computes a tile of query rows of one head; each of its warps
// owns some of the rows and sees all keys, so that warps share nothing but the tiles of K and V.
//
//   for each tile of keys:   S = Q K^T     mma.sync, F32 accumulators
//                            P = online softmax of S, in registers
//                            O = shrink O + P V
//   O /= sum of P
#pragma once

#include "core/forward_result.cuh"
#include "core/schedule.cuh"
#include "sm80/forward_tile.h"
#include "sm80/products.cuh"
#include "sm80/tile_ring.cuh"

namespace flash_attn {

template <class T, int kHeadDim>
FA_KERNEL FA_LAUNCH_BOUNDS(ForwardTile<kHeadDim>::kThreads, ForwardTile<kHeadDim>::kBlocks)
    forward_sm80(FA_GRID_CONSTANT ForwardArgs args) {
  using Tile = ForwardTile<kHeadDim>;
  constexpr int kRowTiles = Tile::kRows / Tile::kWarps / 16;
  constexpr int kColumnTiles = Tile::kKeys / 8;

  const ScheduledTile work = scheduled_tile(args, block_x());
  const Sequence sequence(args.query, args.kv, work.batch);
  const int first_row = work.row_tile * Tile::kRows;
  if (first_row >= sequence.n_queries) return;
  const int rows_left = sequence.n_queries - first_row;
  const int last_row = first_row + (rows_left < Tile::kRows ? rows_left : Tile::kRows) - 1;
  const KeyWindow window(args.score, sequence);
  const KeyTiles tiles = window.tiles<Tile::kKeys>(first_row, last_row);

  T *const q_tile = reinterpret_cast<T *>(dynamic_shared());
  const int warp_row = warp_uniform(thread_index() / 32) * 16 * kRowTiles;
  const auto query_of = [&](int row) { return first_row + warp_row + row; };

  OnlineSoftmax<kRowTiles> softmax(args.score);
  Accumulators<kRowTiles, kHeadDim / 8> out;
  clear<kRowTiles, kHeadDim / 8>(out);

  if (tiles.first < tiles.end) {
    const T *const q = static_cast<const T *>(args.query.q) +
                       row_offset(args.query.q_stride, args.query.cu_seqlens != nullptr, sequence,
                                  first_row, work.head);
    copy_rows_async<T, kHeadDim, Tile::kRows, Tile::kThreads>(
        q_tile, q, [&](int row) -> const T * {
          return row < rows_left ? q + row * args.query.q_stride.row : nullptr;
        });
    TileRing<T, kHeadDim, Tile::kKeys, Tile::kSlots, Tile::kThreads> ring(
        q_tile + Tile::kRows * kHeadDim, args.kv, sequence, work.head / args.group, tiles);
    ring.start();

    Queries<T, kHeadDim, kRowTiles, Tile::kQueriesInRegisters> queries;
    for (int tile = tiles.first; tile < tiles.end; tile++) {
      const T *const keys = ring.take_keys(tile);
      if (tile == tiles.first) queries.load(q_tile + warp_row * kHeadDim);
      Accumulators<kRowTiles, kColumnTiles> scores;
      clear<kRowTiles, kColumnTiles>(scores);
      multiply_keys<T, kHeadDim, kRowTiles, kColumnTiles>(scores, queries, keys);

      if (args.score.softcap_scale > 0) cap_scores<kRowTiles, kColumnTiles>(scores, args.score);
      const int first_key = tile * Tile::kKeys;
      if (!window.sees_all(first_row, last_row, first_key, first_key + Tile::kKeys)) {
        mask_scores<kRowTiles, kColumnTiles>(scores, window, query_of, first_key);
      }
      PerRow<kRowTiles> shrink;
      softmax.template add<kColumnTiles>(scores, shrink);
      scale_rows<kRowTiles, kHeadDim / 8>(out, shrink);

      const T *const values = ring.take_values(tile);
      multiply_values<T, kHeadDim, kRowTiles, kColumnTiles>(out, scores, values);
    }
  }

  write_forward_result<T, kRowTiles, kHeadDim / 8>(args, sequence, work.head, out, softmax, query_of);
}

}  // namespace flash_attn

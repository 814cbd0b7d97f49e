// FlashAttention-2 forward for SM80. A block computes a tile of query rows of one head. Each of its
// warps has some of the rows and all keys, so that warps share only the tiles of K and V.
//
//   for each tile of keys:   S = Q K^T     mma.sync, F32 accumulators
//                            P = online softmax of S, in registers
//                            O = shrink O + P V
//   O /= sum of P
#pragma once

#include "core/forward_result.cuh"
#include "core/schedule.cuh"
#include "core/score_mask.cuh"
#include "sm80/forward_tile.h"
#include "sm80/products.cuh"
#include "sm80/tile_ring.cuh"

namespace flash_attn {

// A block's tile of query rows.
template <int kHeadDim>
struct RowTile {
  ScheduledTile place;
  Sequence sequence;
  int first_row;
  int n_rows;

  FA_DEVICE RowTile(const ForwardArgs &args, int number)
      : place(scheduled_tile(args.schedule, number)),
        sequence(args.query, args.kv, place.batch),
        first_row(place.row_tile * ForwardTile<kHeadDim>::kRows),
        n_rows(sequence.n_queries - first_row) {
    if (n_rows > ForwardTile<kHeadDim>::kRows) n_rows = ForwardTile<kHeadDim>::kRows;
  }
};

// O and the softmax of the rows of one warp, from warp_row on.
template <class T, int kHeadDim, bool kMasked, int kRowTiles>
FA_DEVICE void accumulate_sm80(const Maskable<ForwardArgs, kMasked> &args,
                               const RowTile<kHeadDim> &work, int warp_row,
                               OnlineSoftmax<kRowTiles> &softmax,
                               Accumulators<kRowTiles, kHeadDim / 8> &out) {
  using Tile = ForwardTile<kHeadDim, kMasked>;
  constexpr int kColumnTiles = Tile::kKeys / 8;
  const int last_row = work.first_row + work.n_rows - 1;
  const KeyWindow window(args.score, work.sequence);
  const KeyTiles tiles = window.tiles<Tile::kKeys>(work.first_row, last_row);
  if (tiles.first >= tiles.end) return;

  const KeyRows rows(args.kv, work.sequence);
  T *const q_tile = reinterpret_cast<T *>(dynamic_shared());
  const T *const q = static_cast<const T *>(args.query.q) +
                     row_offset(args.query.q_stride, args.query.cu_seqlens != nullptr,
                                work.sequence, work.first_row, work.place.head);
  copy_rows_async<T, kHeadDim, Tile::kRows, Tile::kThreads>(q_tile, q, [&](int row) -> const T * {
    return row < work.n_rows ? q + row * args.query.q_stride.row : nullptr;
  });
  TileRing<T, kHeadDim, Tile::kKeys, Tile::kSlots, Tile::kThreads> ring(
      q_tile + Tile::kRows * kHeadDim, args.kv, rows, work.sequence.n_keys,
      divide(work.place.head, args.schedule.group), tiles);
  ring.start();

  const T *queries = nullptr;
  for (int tile = tiles.first; tile < tiles.end; tile++) {
    const T *const keys = ring.take_keys(tile);
    // Assigned here, so that no addresses of its columns take registers between the tiles.
    if (tile == tiles.first) queries = q_tile + warp_row * kHeadDim;
    Accumulators<kRowTiles, kColumnTiles> scores;
    clear<kRowTiles, kColumnTiles>(scores);
    multiply_keys<T, kHeadDim, kRowTiles, kColumnTiles>(scores, queries, keys);

    if (args.score.softcap_scale > 0) cap_scores<kRowTiles, kColumnTiles>(scores, args.score);
    const int first_key = tile * Tile::kKeys;
    if (!window.sees_all(work.first_row, last_row, first_key, first_key + Tile::kKeys)) {
      mask_scores<kRowTiles, kColumnTiles>(
          scores, window, [&](int row) { return work.first_row + warp_row + row; }, first_key);
    }
    if constexpr (kMasked) {
      const MaskRows masks(args.mask, mask_pitch(args), args.query, work.sequence);
      // Rows after the last query repeat it.
      const auto offset_of = [&](int row) {
        const int query = work.first_row + warp_row + row;
        return masks.offset(query < last_row ? query : last_row, work.place.head);
      };
      apply_mask<T, kRowTiles, kColumnTiles>(scores, args.mask, work.sequence.n_keys, offset_of,
                                             first_key);
    }
    PerRow<kRowTiles> shrink;
    if (softmax.template raise<kColumnTiles>(scores, shrink)) {
      scale_rows<kRowTiles, kHeadDim / 8>(out, shrink);
    }
    softmax.template add<kColumnTiles>(scores);
    Weights<kRowTiles, kColumnTiles> weights;
    pack_weights<T, kRowTiles, kColumnTiles>(weights, scores);

    const T *const values = ring.take_values(tile);
    multiply_values<T, kHeadDim, kRowTiles, kColumnTiles>(out, weights, values);
  }
  ring.finish();
}

template <class T, int kHeadDim, bool kMasked>
FA_KERNEL FA_LAUNCH_BOUNDS((ForwardTile<kHeadDim, kMasked>::kThreads),
                           (ForwardTile<kHeadDim, kMasked>::kBlocks))
    forward_sm80(FA_GRID_CONSTANT Maskable<ForwardArgs, kMasked> args) {
  using Tile = ForwardTile<kHeadDim, kMasked>;
  static_assert(Tile::kRows == ForwardTile<kHeadDim>::kRows);
  constexpr int kRowTiles = Tile::kRows / Tile::kWarps / 16;
  const int warp_row = warp_uniform(thread_index() / 32) * 16 * kRowTiles;
  OnlineSoftmax<kRowTiles> softmax(args.score, args.score.softcap_scale > 0);
  Accumulators<kRowTiles, kHeadDim / 8> out;
  clear<kRowTiles, kHeadDim / 8>(out);
  {
    const RowTile<kHeadDim> work(args, block_x());
    // The grid is shaped for the longest sequence; shorter ones have fewer tiles.
    if (work.n_rows <= 0) return;
    accumulate_sm80<T, kHeadDim, kMasked>(args, work, warp_row, softmax, out);
  }
  const RowTile<kHeadDim> work(args, forget(block_x()));
  write_forward_result<T, kRowTiles, kHeadDim / 8>(
      args, work.sequence, work.place.head, out, softmax,
      [&](int row) { return work.first_row + warp_row + row; });
}

}  // namespace flash_attn

// Few queries against many keys (Flash-Decoding). The query heads of a key head are packed as rows
// of one tile, so that keys and values are read once for all of them:
//
//   row of the tile = query * group + head of the group
//
// The keys of a sequence are divided among blocks, and the keys of a tile among warps.
#pragma once

#include <type_traits>

#include "core/output.cuh"
#include "core/score_mask.cuh"
#include "decode/parts.cuh"
#include "decode/q8_products.cuh"
#include "sm80/products.cuh"
#include "sm80/tile_ring.cuh"

namespace flash_attn {

// The query and the head of a row of the tile.
struct PackedRow {
  int query;
  int head;

  FA_DEVICE PackedRow(const DecodeArgs &args, int row, int kv_head)
      : query(divide(row, args.group)),
        head(kv_head * args.group.value + row - query * args.group.value) {}
};

// The products of a warp with keys and values of the queries' type; see Q8Products.
template <class T, int kHeadDim, int kColumnTiles>
class PlainProducts {
 public:
  FA_DEVICE void load_queries(const T *rows) { queries_ = rows; }
  FA_DEVICE void multiply_keys(Accumulators<1, kColumnTiles> &scores, const T *keys,
                               const T *) const {
    flash_attn::multiply_keys<T, kHeadDim, 1, kColumnTiles>(scores, queries_, keys);
  }
  FA_DEVICE void multiply_values(Accumulators<1, kHeadDim / 8> &out,
                                 const Weights<1, kColumnTiles> &weights, const T *values,
                                 const T *) const {
    flash_attn::multiply_values<T, kHeadDim, 1, kColumnTiles>(out, weights, values);
  }
  FA_DEVICE static int column(int n, int e) { return 8 * n + 2 * (thread_index() % 4) + e; }

 private:
  const T *queries_ = nullptr;
};

// Stores a warp's normalized rows and their log-sum-exp in shared memory.
template <class Products, int kHeadDim, int kStride>
FA_DEVICE void stage_rows(float *rows, float *lse, const Accumulators<1, kHeadDim / 8> &out,
                          const PerRow<1> &lse_log2) {
  const int lane = thread_index() % 32;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int row = lane / 4 + 8 * h;
#pragma unroll
    for (int n = 0; n < kHeadDim / 8; n++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        rows[row * kStride + Products::column(n, e)] = out[0][n][2 * h + e];
      }
    }
    if (lane % 4 == 0) lse[row] = lse_log2[0][h];
  }
}

template <class T, int kHeadDim, int kRowWarps, bool kIsQ8, bool kMasked>
FA_KERNEL FA_LAUNCH_BOUNDS(128, (decode_blocks<DecodeTile<kHeadDim, kRowWarps, kIsQ8>>(kMasked)))
    decode_sm80(FA_GRID_CONSTANT Maskable<DecodeArgs, kMasked> args) {
  using Tile = DecodeTile<kHeadDim, kRowWarps, kIsQ8>;
  constexpr int kColumnTiles = Tile::kKeysEach / 8;
  using Stored = std::conditional_t<kIsQ8, q8_pair, T>;
  using Products = std::conditional_t<kIsQ8, Q8Products<kHeadDim, kColumnTiles>,
                                      PlainProducts<T, kHeadDim, kColumnTiles>>;

  // Before the first keys, or with early keys after them.
  const auto wait = [&](bool early) {
    if ((args.early_keys != 0) == early) wait_for_previous_kernel();
  };
  wait(false);
  const Sequence sequence(args.query, args.kv, block_z());
  const KeyRows rows(args.kv, sequence);
  const int row_tile = divide(block_y(), args.n_kv_heads);
  const int kv_head = block_y() - row_tile * args.n_kv_heads.value;
  const int first_row = row_tile * Tile::kRows;
  const int n_rows = sequence.n_queries * args.group.value;
  const KeyParts parts(args, sequence);
  const int part = block_x();
  if (first_row >= n_rows || part >= parts.count) {
    // Later kernels count on this one to end after the previous kernel.
    wait(true);
    return;
  }

  // Rows beyond the last repeat it and are not written.
  const auto packed_row = [&](int row) {
    return first_row + row < n_rows ? first_row + row : n_rows - 1;
  };
  const int first_query = divide(first_row, args.group);
  const int last_query = divide(packed_row(Tile::kRows - 1), args.group);
  const KeyWindow window(args.score, sequence);
  const KeyTiles seen = window.tiles<kDecodeKeys>(first_query, last_query);
  KeyTiles tiles = parts.tiles(part);
  tiles.first = tiles.first < seen.first ? seen.first : tiles.first;
  tiles.end = tiles.end > seen.end ? seen.end : tiles.end;

  const int warp = warp_uniform(thread_index() / 32);
  const int warp_row = warp / Tile::kKeyWarps * 16;
  const int warp_key = warp % Tile::kKeyWarps * Tile::kKeysEach;
  const auto query_of = [&](int row) { return divide(packed_row(warp_row + row), args.group); };

  OnlineSoftmax<1> softmax(args.score, args.score.softcap_scale > 0);
  Accumulators<1, kHeadDim / 8> out;
  clear<1, kHeadDim / 8>(out);

  if (tiles.first < tiles.end) {
    T *const q_tile = reinterpret_cast<T *>(dynamic_shared());
    TileRing<Stored, Tile::kStored, kDecodeKeys, Tile::kSlots, Tile::kThreads, Tile::kScales> ring(
        reinterpret_cast<Stored *>(q_tile + Tile::kRows * kHeadDim), args.kv, rows, sequence.n_keys,
        kv_head, tiles);
    ring.start();
    wait(true);
    allow_next_kernel();
    const T *const q = static_cast<const T *>(args.query.q);
    copy_rows<T, kHeadDim, Tile::kRows, Tile::kThreads>(q_tile, [&](int row) {
      const PackedRow at(args, packed_row(row), kv_head);
      return q + row_offset(args.query.q_stride, args.query.cu_seqlens != nullptr, sequence,
                            at.query, at.head);
    });
    // The warp's keys in a tile, and their factors.
    constexpr int kFactors = kDecodeKeys * Tile::kStored;
    const int own = warp_key * Tile::kStored, factors = kFactors + warp_key * Tile::kScales;

    [[maybe_unused]] const int pitch = mask_pitch(args);
    Products products;
    for (int tile = tiles.first; tile < tiles.end; tile++) {
      const Stored *const keys = ring.take_keys(tile);
      if (tile == tiles.first) products.load_queries(q_tile + warp_row * kHeadDim);
      Accumulators<1, kColumnTiles> scores;
      clear<1, kColumnTiles>(scores);
      products.multiply_keys(scores, keys + own, keys + factors);

      if (args.score.softcap_scale > 0) cap_scores<1, kColumnTiles>(scores, args.score);
      const int first_key = tile * kDecodeKeys;
      if (!window.sees_all(first_query, last_query, first_key, first_key + kDecodeKeys)) {
        mask_scores<1, kColumnTiles>(scores, window, query_of, first_key + warp_key);
      }
      if constexpr (kMasked) {
        const MaskRows masks(args.mask, pitch, args.query, sequence);
        const auto offset_of = [&](int row) {
          const PackedRow at(args, packed_row(warp_row + row), kv_head);
          return masks.offset(at.query, at.head);
        };
        apply_mask<T, 1, kColumnTiles>(scores, args.mask, sequence.n_keys, offset_of,
                                       first_key + warp_key);
      }
      PerRow<1> shrink;
      if (softmax.template raise<kColumnTiles>(scores, shrink)) {
        scale_rows<1, kHeadDim / 8>(out, shrink);
      }
      softmax.template add<kColumnTiles>(scores);
      Weights<1, kColumnTiles> weights;
      pack_weights<T, 1, kColumnTiles>(weights, scores);

      const Stored *const values = ring.take_values(tile);
      products.multiply_values(out, weights, values + own, values + factors);
    }
    ring.finish();
  } else {
    wait(true);
  }

  PerRow<1> factor, lse_log2;
  softmax.finish(factor, lse_log2, [](int) { return kMinusInfinity; });
  scale_rows<1, kHeadDim / 8>(out, factor);

  // Collect the warps' results in shared memory, where the tiles are no longer needed.
  block_barrier();
  float *const staged = reinterpret_cast<float *>(dynamic_shared());
  float *const staged_lse = staged + Tile::kResults * Tile::kResultStride;
  const int result = warp % Tile::kKeyWarps * Tile::kRows + warp_row;
  stage_rows<Products, kHeadDim, Tile::kResultStride>(
      staged + result * Tile::kResultStride, staged_lse + result, out, lse_log2);
  block_barrier();

  constexpr int kChunks = kHeadDim / 8;
  for (int i = thread_index(); i < Tile::kRows * kChunks; i += Tile::kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    if (first_row + row >= n_rows) break;
    const PackedRow at(args, first_row + row, kv_head);
    const Combined combined = combine_warps<Tile::kKeyWarps>(
        staged_lse + row, Tile::kRows, staged + row * Tile::kResultStride + 8 * chunk,
        Tile::kRows * Tile::kResultStride);
    if (parts.count == 1) {
      write_combined<T>(args, sequence, at.query, at.head, chunk, sink_log2(args, at.head),
                        combined);
      continue;
    }
    const int64_t to = partial_row(args, sequence, at.query, at.head);
    float *const columns = partial_out(args, to, part, 8 * chunk);
    store_floats(columns, combined.value[0]);
    store_floats(columns + 4, combined.value[1]);
    if (chunk == 0) partial_lse(args, to)[part] = combined.lse_log2;
  }
}

}  // namespace flash_attn

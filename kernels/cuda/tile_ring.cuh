#pragma once

// The product of several tokens with a weight, bound by memory: decode_gemm.cu and
// gated_decode_gemm.cu compute it by this for the formats of formats.cuh.
//
// A block has one ring of stages in shared memory. A stage has the same columns of the tile's rows
// and of all tokens, so that a tile reads the tokens once, from L2. Each of 16 warps copies and
// multiplies 16 rows of its own; of 64 tokens, for which that would take too many registers and
// loads from shared memory, each of 8 warps 32. All warps share the tokens, and wait for each other
// once a stage. The ring is filled with weights before the wait for the previous kernel; while they
// arrive, the blocks may convert the rows of x (rounded_rows.cuh).
//
// The grid has at most the blocks that the device runs at once. A block takes its pieces one after
// another, each a tile of rows with one part of the columns; copies of the next begin while one is
// multiplied. Tiles have as many rows as divide the weight evenly among the blocks.
//
// Slices and parts of the columns are those of weight_ring.cuh, added in the same order. A block
// has the four slices of a part in turn, or, of tiles of few rows, so that no warp is idle, two or
// four at once; a stage then has the columns of each. They are added to sums in shared memory. If a
// weight has several parts, the last block to finish one of a tile adds them up.

#include "chunk_products.cuh"
#include "rounded_rows.cuh"
#include "row_set.cuh"
#include "weight_spans.cuh"

// Tiles of 16 rows that a warp has, and the threads of a block, by eights of tokens.
template <u32 token_tiles>
constexpr u32 kRowTiles = token_tiles == 8 ? 2 : 1;
template <u32 token_tiles>
constexpr u32 kTileThreads = 512 / kRowTiles<token_tiles>;
constexpr u32 kMostParts = 8;
// Most stages of a ring.
constexpr u32 kMostStages = 10;

// Waits until at most the last `left` groups of copies are in flight, 1 to kMostStages - 2.
DEVICE void wait_copies_but(u32 left) {
  switch (left) {
    case 1:
      return wait_copies<1>();
    case 2:
      return wait_copies<2>();
    case 3:
      return wait_copies<3>();
    case 4:
      return wait_copies<4>();
    case 5:
      return wait_copies<5>();
    case 6:
      return wait_copies<6>();
    case 7:
      return wait_copies<7>();
    default:
      return wait_copies<8>();
  }
}

// A block's products with up to 8 * token_tiles tokens. row_of(i): the row of the weight that is
// row i of all tiles together, which are n_rows. Shared memory: the sums of a tile, then the ring.
template <class F, class T, u32 token_tiles, class RowOf>
class TileRing {
  using Spans = WeightSpans<F>;
  static constexpr u32 kTiles = kRowTiles<token_tiles>, kThreads = kTileThreads<token_tiles>;
  static constexpr u32 kRows = 16 * kTiles, kTokens = 8 * token_tiles;
  // Bytes of 16 rows of a stage, and units of eight numbers of each of its tokens.
  static constexpr u32 kRowsBytes = 16 * Spans::kRowBytes, kUnits = Spans::kStageCols / 8;
  using Sums = float[kTiles][token_tiles][4];

 public:
  // memory: the block's dynamic shared memory (ProductTile of csrc/cuda/plan_builder.h).
  DEVICE_MEMBER TileRing(void* memory, const ProductOperands& a, const Tiling& tiling, u32 n_rows,
                         RowOf row_of)
      : a_(a),
        tiling_(tiling),
        row_of_(row_of),
        tiles_((n_rows + tiling.rows - 1) / tiling.rows),
        slice_(warp_id() / (tiling.rows / kRows)),
        row_(warp_id() % (tiling.rows / kRows) * kRows),
        sums_(static_cast<float*>(memory) + row_ * kTokens),
        ring_(reinterpret_cast<u8*>(static_cast<float*>(memory) + tiling.rows * kTokens)),
        to_x_(tiling.slices * (tiling.rows / 16) * kRowsBytes),
        stage_bytes_(to_x_ + tiling.slices * kTokens * kUnits * 16),
        next_(first_cursor()) {}

  // Requests the first weights: all stages but one.
  DEVICE_MEMBER void request() {
    if (next_.piece < n_pieces()) place_rows();
#pragma unroll 1
    for (u32 i = 0; i + 1 < tiling_.stages; ++i) copy_stage(false);
  }

  // Copies the same columns of `count` tokens.
  DEVICE_MEMBER void begin_tokens(u32 first, u32 count) {
    first_token_ = first;
    n_tokens_ = count;
    x_ = static_cast<const T*>(a_.x.data) + u64(first) * a_.x.padded_cols;
    Cursor cursor = first_cursor();
#pragma unroll 1
    for (u32 slot = 0; slot + 1 < tiling_.stages && cursor.piece < n_pieces(); ++slot) {
      copy_tokens(cursor, slot);
      advance(cursor);
    }
    commit_copies();
    // Groups of copies end in turn, so the weights that were requested before arrive first.
    wait_copies<0>();
  }

  // Multiplies the pieces. For each output i of the rows of a warp, of which the first is row `row`
  // of all tiles together, and each token, store.begin(row, i, row of the token, sum_of) loads what
  // the output depends on; sum_of(r) is the product with row r of the warp's. store.finish() takes
  // what it returned. `outputs`: those of a warp.
  template <class Store>
  DEVICE_MEMBER void multiply(u32 outputs, Store store) {
#pragma unroll 1
    for (u32 piece = blockIdx.y; piece < n_pieces(); piece += gridDim.y) {
      const u32 part = piece % tiling_.parts, tile = piece / tiling_.parts;
      const u32 first = kPartSlices * part;
#pragma unroll 1
      for (u32 slice = first; slice < first + kPartSlices; slice += tiling_.slices) {
        Sums own = {};
        Cursor cursor = cursor_of_slice(piece, slice);
#pragma unroll 1
        for (; cursor.left > 0; --cursor.left) add_stage(own, cursor.stage++, cursor.end);
        for (u32 i = 0; i < tiling_.slices; ++i) {
          if (i == slice_) add_slice(own, slice + i == first);
          __syncthreads();
        }
      }
      if (tiling_.parts > 1 && !complete(tile, part)) continue;
      if (has_rows()) store_outputs(tile * tiling_.rows + row_, outputs, store);
      __syncthreads();
    }
    wait_copies<0>();
  }

 private:
  // A stage of the warp's slice, which ends before `end`, of those that are computed at once, of
  // which the first is slice number `slice` of the row. left: stages of the longest of them.
  struct Cursor {
    u32 piece, slice, stage, end, left;
  };

  // A warp beyond the tile's rows has none, and no tokens.
  DEVICE_MEMBER bool has_rows() const { return slice_ < tiling_.slices; }
  DEVICE_MEMBER u32 n_pieces() const { return tiles_ * tiling_.parts; }
  DEVICE_MEMBER Cursor cursor_of_slice(u32 piece, u32 slice) const {
    Cursor cursor = {piece, slice, 0, 0, 0};
    u32 begin = first_stage<F>(slice, a_.weight.cols, tiling_.parts);
#pragma unroll 1
    for (u32 i = 0; i < tiling_.slices; ++i) {
      const u32 end = first_stage<F>(slice + i + 1, a_.weight.cols, tiling_.parts);
      cursor.left = max(cursor.left, end - begin);
      if (i == slice_) cursor = {piece, slice, begin, end, cursor.left};
      begin = end;
    }
    return cursor;
  }
  // Slices of few columns may have no stages.
  DEVICE_MEMBER void skip_empty(Cursor& cursor) const {
    while (cursor.left == 0 && cursor.piece < n_pieces()) {
      u32 piece = cursor.piece, slice = cursor.slice + tiling_.slices;
      if (slice % kPartSlices == 0) {
        piece += gridDim.y;
        slice = kPartSlices * (piece % tiling_.parts);
      }
      cursor = cursor_of_slice(piece, slice);
    }
  }
  DEVICE_MEMBER Cursor first_cursor() const {
    Cursor cursor = cursor_of_slice(blockIdx.y, kPartSlices * (blockIdx.y % tiling_.parts));
    skip_empty(cursor);
    return cursor;
  }
  DEVICE_MEMBER void advance(Cursor& cursor) const {
    ++cursor.stage;
    --cursor.left;
    skip_empty(cursor);
  }

  // The warp's rows, and the tokens of its slice, of a stage.
  DEVICE_MEMBER u8* rows_of(u32 slot) const {
    return ring_ + slot * stage_bytes_ + warp_id() * (kTiles * kRowsBytes);
  }
  DEVICE_MEMBER uint4* x_of(u32 slot) const {
    return reinterpret_cast<uint4*>(ring_ + slot * stage_bytes_ + to_x_) +
           slice_ * (kTokens * kUnits);
  }
  // The warps of a slice share its tokens: a thread copies the same eight columns of some, all odd
  // or all even ones.
  DEVICE_MEMBER u32 slice_threads() const { return tiling_.rows / kRows * kWarp; }
  DEVICE_MEMBER u32 own_unit() const {
    return threadIdx.x - (has_rows() ? slice_ * slice_threads() : 0);
  }
  DEVICE_MEMBER void copy_tokens(const Cursor& cursor, u32 slot) const {
    if (cursor.stage >= cursor.end) return;
    const u32 col = own_unit() % kUnits * 8 + cursor.stage * Spans::kStageCols;
    const bool is_in_row = col < a_.x.padded_cols;
    const u32 token = own_unit() / kUnits, unit = unit_place<F>(token, own_unit() % kUnits);
    const T* from = x_ + (is_in_row ? u64(token) * a_.x.padded_cols + col : 0);
    uint4* to = x_of(slot) + token * kUnits + unit;
    const u32 step = slice_threads() / kUnits;
#pragma unroll 1
    for (u32 i = token; i < n_tokens_; i += step) {
      copy_async_16(to, from, is_in_row);
      to += slice_threads();
      if (is_in_row) from += u64(step) * a_.x.padded_cols;
    }
  }

  // Finds the rows that this lane copies of a tile.
  DEVICE_MEMBER void place_rows() {
    const u32 first = next_.piece / tiling_.parts * tiling_.rows + row_;
#pragma unroll
    for (u32 m = 0; m < kTiles; ++m) {
      copies_[m].begin([&](u32 i) {
        return row_of_(first + 16 * m + i) * u32(a_.weight.row_stride / 16);
      });
    }
  }

  // Requests the next stage, if there is one. Each stage has a group of copies, empty ones too.
  DEVICE_MEMBER void copy_stage(bool with_tokens) {
    if (next_.piece < n_pieces()) {
      if (next_.stage < next_.end) {
#pragma unroll
        for (u32 m = 0; m < kTiles; ++m) {
          copies_[m].copy(rows_of(to_) + m * kRowsBytes, a_.weight.data, a_.weight.cols,
                          next_.stage);
        }
      }
      if (with_tokens) copy_tokens(next_, to_);
      const u32 piece = next_.piece;
      advance(next_);
      if (next_.piece != piece && next_.piece < n_pieces()) place_rows();
    }
    if (++to_ == tiling_.stages) to_ = 0;
    commit_copies();
  }

  // end: of the warp's slice, which may have fewer stages than others.
  DEVICE_MEMBER void add_stage(Sums& sums, u32 stage, u32 end) {
    wait_copies_but(tiling_.stages - 2);
    // All copies of the stage are visible, and no warp reads the one that is filled next any more.
    __syncthreads();
    copy_stage(true);
    if (stage >= end) return;
    // The stage after the one that is filled is the oldest.
    const u8* from = rows_of(to_);
    // Lanes without a token compute sums that nothing reads.
    const uint4* x = x_of(to_) + lane_id() / 4 * kUnits;
    constexpr u32 kStageChunks = Spans::kStageCols / F::kCols;
    // Chunks beyond the last repeat the last; x is zero there.
    const u32 last = min(kStageChunks, chunks_of<F>(a_.weight.cols) - stage * kStageChunks) - 1;
#pragma unroll
    for (u32 step = 0; step < kStageChunks / 4; ++step) {
      const u32 chunk = min(4 * step + lane_id() % 4, last), row = lane_id() / 4;
      typename F::Chunk chunks[kTiles][2];
#pragma unroll
      for (u32 m = 0; m < kTiles; ++m) {
#pragma unroll
        for (u32 i = 0; i < 2; ++i) {
          chunks[m][i] = Spans::chunk(from + m * kRowsBytes, row + 8 * i, chunk, stage);
        }
      }
      multiply_step<F, T, kUnits>(sums, chunks, x, step);
    }
  }

  // The place of a sum among those of a warp: two tokens next to each other, so that neither the
  // lanes that add nor those that store meet in a bank.
  static DEVICE_MEMBER u32 place_of(u32 token, u32 row) {
    const u32 pair = token / 2;
    return (pair * kRows + (row ^ pair % 4 * 4)) * 2 + token % 2;
  }

  // Adds the sums of a slice; the first one replaces those of another piece.
  DEVICE_MEMBER void add_slice(const Sums& own, bool is_first) {
#pragma unroll
    for (u32 m = 0; m < kTiles; ++m) {
#pragma unroll
      for (u32 n = 0; n < token_tiles; ++n) {
#pragma unroll
        for (u32 i = 0; i < 4; i += 2) {
          const u32 row = 16 * m + i / 2 * 8 + lane_id() / 4;
          float2* sum = reinterpret_cast<float2*>(
              sums_ + place_of(8 * n + lane_id() % 4 * 2, row));
          const float2 before = is_first ? make_float2(0, 0) : *sum;
          *sum = make_float2(before.x + own[m][n][i], before.y + own[m][n][i + 1]);
        }
      }
    }
  }

  // Adds the sums of the other parts of a tile; returns true in the last block to arrive, whose
  // sums are then complete. The warps of all slices share the sums of their rows.
  DEVICE_MEMBER bool complete(u32 tile, u32 part) {
    tile += blockIdx.x * tiles_;
    const u32 part_sums = tiling_.rows * kTokens;
    const u32 n = has_rows() ? (n_tokens_ + 1) / 2 * 2 * kRows : 0;
    const u32 first = (slice_ * kWarp + lane_id()) * 4, stride = tiling_.slices * kWarp * 4;
    float* all = tiling_.partial + u64(tile) * tiling_.parts * part_sums + row_ * kTokens;
    for (u32 i = first; i < n; i += stride) {
      *reinterpret_cast<float4*>(all + part * part_sums + i) =
          *reinterpret_cast<const float4*>(sums_ + i);
    }
    if (!is_last_arrival(tiling_.arrivals + tile, tiling_.parts)) return false;
    for (u32 i = first; i < n; i += stride) {
      // All loads are in flight together.
      float4 parts[kMostParts];
#pragma unroll
      for (u32 z = 0; z < kMostParts; ++z) {
        parts[z] = make_float4(0, 0, 0, 0);
        if (z < tiling_.parts) parts[z] = *reinterpret_cast<float4*>(all + z * part_sums + i);
      }
      float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
      for (u32 z = 0; z < kMostParts; ++z) {
        sum = make_float4(sum.x + parts[z].x, sum.y + parts[z].y, sum.z + parts[z].z,
                          sum.w + parts[z].w);
      }
      *reinterpret_cast<float4*>(sums_ + i) = sum;
    }
    __syncthreads();
    return true;
  }

  template <class Store>
  DEVICE_MEMBER void store_outputs(u32 first_row, u32 outputs, Store store) const {
    // Loads of several outputs are in flight together.
    constexpr u32 kTogether = 4;
    const u32 stride = tiling_.slices * kWarp;
#pragma unroll 1
    for (u32 first = slice_ * kWarp + lane_id(); first < outputs * n_tokens_;
         first += kTogether * stride) {
      typename Store::Loaded loaded[kTogether];
#pragma unroll
      for (u32 k = 0; k < kTogether; ++k) {
        const u32 i = min(first + k * stride, outputs * n_tokens_ - 1), token = i / outputs;
        const float scale = a_.x.scale[first_token_ + token];
        loaded[k] = store.begin(first_row, i - token * outputs,
                                row_of_set(a_.set, first_token_ + token),
                                [&](u32 row) { return sums_[place_of(token, row)] * scale; });
      }
#pragma unroll
      for (u32 k = 0; k < kTogether; ++k) {
        if (first + k * stride < outputs * n_tokens_) store.finish(loaded[k]);
      }
    }
  }

  const ProductOperands& a_;
  const Tiling& tiling_;
  RowOf row_of_;
  const u32 tiles_;
  const u32 slice_, row_;  // of those that are computed at once; the first row of the warp
  float* sums_;            // of the warp's rows
  u8* ring_;
  const u32 to_x_, stage_bytes_;
  const T* x_ = nullptr;
  u32 first_token_ = 0, n_tokens_ = 0;
  // The next stage to copy, and its place in the ring.
  Cursor next_;
  typename Spans::Copies copies_[kTiles];
  u32 to_ = 0;
};

// The products of 8 * token_tiles tokens of a set for each block along x of a grid, by the blocks
// along y. store, outputs: as TileRing::multiply takes them. conversion: of the rows of x, or none.
template <class F, class T, u32 token_tiles, class RowOf, class Store>
DEVICE void multiply_by_tiles(void* memory, const ProductOperands& a, const Tiling& tiling,
                              const SharedConversion& conversion, u32 n_rows, u32 outputs,
                              RowOf row_of, Store store) {
  TileRing<F, T, token_tiles, RowOf> product(memory, a, tiling, n_rows, row_of);
  product.request();
  wait_for_previous_kernel();
  convert_together<T, kTileThreads<token_tiles>>(conversion);
  const u32 first_token = blockIdx.x * 8 * token_tiles, count = *a.set.count;
  if (first_token >= count) {
    wait_copies<0>();
    return;
  }
  product.begin_tokens(first_token, min(count - first_token, 8 * token_tiles));
  product.multiply(outputs, store);
}

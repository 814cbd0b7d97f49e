#pragma once

// The product of few tokens with a weight on tensor cores, bound by memory: the body of
// decode_gemm.cu, gated_decode_gemm.cu and grouped_decode_gemm.cu.
//
// Of one token, and of up to eight if a multiprocessor has memory for their rows of x, weights pass
// through shared memory (weight_ring.cuh), except for file blocks. Else they go from memory into
// registers in 16-byte chunks, several in flight per lane. The first weights are requested before
// the wait for the previous kernel.
//
// The rows are cut into spans of 128 columns. Four slices of each row have a quarter of the spans
// each; two warps compute the same slice of different rows, so that the eight warps of a block
// share x, which is in shared memory: all of it for one token, which the block rounds itself, else
// a ring of spans that are copied asynchronously from rows rounded by convert_rows.
//
// Where a weight has too few rows to fill the device, gridDim.z blocks divide the columns of a tile
// among themselves, and the last one to finish adds up their sums. A ring has the slices of all of
// them in one block.
//
// The sums of a token are added in the same order in every instance: within a slice in the order of
// the columns, then over the slices of a block, then over blocks. They do not depend on the other
// tokens.

#include "activation.cuh"
#include "blocks.cuh"
#include "chunk_products.cuh"
#include "rounded_rows.cuh"
#include "row_set.cuh"
#include "weight_ring.cuh"

constexpr u32 kThreads = kRowThreads, kSlices = 4, kRowWarps = 2, kSpan = 128,
              kSpanUnits = kSpan / 8;

// The tile of a block: 8 * token_tiles tokens, or a single one if token_tiles is 0, and row_tiles
// times 16 rows for each of the warps that share a slice. No row tiles: weights pass through rings.
constexpr u32 kRing = 0;
template <u32 token_tiles, u32 row_tiles>
struct DecodeTile {
  static constexpr bool kHasRing = row_tiles == kRing;
  static constexpr bool kOne = token_tiles == 0;
  static constexpr u32 kTokenTiles = kOne ? 1 : token_tiles;
  static constexpr u32 kTokens = kOne ? 1 : 8 * token_tiles;
  static constexpr u32 kRowTiles = row_tiles;
  static constexpr u32 kRows = kRowWarps * 16 * kRowTiles;
  // Spans of x in shared memory, for several tokens.
  static constexpr u32 kSlots = token_tiles >= 4 ? 2 : 3;
  static constexpr u32 kSumStride = kRows + 4;
};

// The row tiles of a weight. Each block reads all of its columns of x, so more rows read x less
// often: 32 tokens take as many rows as the registers hold. File blocks fill them with 32 rows.
template <class F, u32 token_tiles>
constexpr u32 kWeightRowTiles =
    kDecodedByLoad<F> ? 1 : token_tiles == 0 ? kRing : token_tiles == 4 ? 4 : 2;

// Steps of a span: in one, four lanes have a chunk of each row.
template <class F>
constexpr u32 kSteps = kSpan / (4 * F::kCols);
// Blocks per multiprocessor, whose registers must suffice.
template <class F, u32 token_tiles>
constexpr u32 kResident = kDecodedByLoad<F> || token_tiles >= 4 ? 1 : 2;
// Spans of weights in flight: 8 to 16 chunks of 16 bytes a lane, as registers allow. All resident
// warps together have at least 32 KB in flight, enough for 3.35 TB/s of an H100.
template <class F, class Tile>
constexpr u32 ahead() {
  constexpr u32 of_span = 2 * Tile::kRowTiles * kSteps<F>;
  constexpr bool has_room = Tile::kTokenTiles == 4 && Tile::kRowTiles == 2;
  // Two blocks of 64 rows have registers for 12, where spans have four.
  constexpr bool is_tight = Tile::kTokenTiles == 1 && Tile::kRowTiles == 2 && of_span == 4;
  constexpr u32 chunks = F::kRegisters <= 5 || has_room ? (is_tight ? 12 : 16) : 8;
  return kDecodedByLoad<F> || of_span >= chunks ? 1 : chunks / of_span;
}

// The chunks of weights of a lane: those of its two rows of each tile.
template <class F, u32 row_tiles, u32 spans>
struct WeightRing {
  typename F::Chunk chunks[spans][kSteps<F>][row_tiles][2] STEP_ZEROS;
  // Rows have whole units; those of file blocks are of any size, and next to each other.
  static constexpr u32 kUnit = kDecodedByLoad<F> ? 1 : 16;
  const u8* first_row;
  u32 distances[row_tiles][2];  // from the first row, in units: addresses would take two registers
  u32 cols, n_chunks;
  const u64* codebooks;

  // row_of(i): the row of the weight that is row i of the warp's tiles.
  template <class RowOf>
  DEVICE_MEMBER void begin(const WeightRows& w, RowOf row_of) {
    cols = w.cols;
    n_chunks = chunks_of<F>(w.cols);
    codebooks = w.codebooks;
    const u32 first = row_of(lane_id() / 4);
    first_row = w.data + u64(first) * w.row_stride;
#pragma unroll
    for (u32 m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        const u32 row = row_of(16 * m + 8 * i + lane_id() / 4);
        distances[m][i] = u32((row - first) * (w.row_stride / kUnit));
      }
    }
  }

  // Chunks beyond the last repeat the last; x is zero there.
  DEVICE_MEMBER void load(u32 slot, u32 step, u32 span) {
    const u32 chunk = min((span * kSteps<F> + step) * 4 + lane_id() % 4, n_chunks - 1);
#pragma unroll
    for (u32 m = 0; m < row_tiles; ++m) {
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        const u8* row = first_row + u64(distances[m][i]) * kUnit;
        chunks[slot][step][m][i] = F::load(row, cols, chunk, codebooks);
      }
    }
  }
};

// Rounds units first .. end - 1 of a row of x to shared memory, and returns the scale of the
// product.
template <class F, class T>
DEVICE float round_row(T type, uint4* to, const float* x, const InputNorm& norm,
                       RowStart& start, u32 cols, u32 first, u32 end) {
  const RowScale scale = scale_of_row(type, x, norm, start, cols);
  for (u32 unit = first + threadIdx.x; unit < end; unit += kThreads) {
    to[unit_place<F>(0, unit) - first] = rounded_unit(type, x, norm, unit, cols, scale.factor);
  }
  return scale.product;
}

// The spans of a warp's slice, and those of its block.
struct SpanRange {
  u32 first, end, most;  // most: spans of the largest slice
  u32 first_of_block, end_of_block;

  explicit DEVICE_MEMBER SpanRange(u32 cols) {
    const u32 spans = (cols + kSpan - 1) / kSpan, slices = kSlices * gridDim.z;
    const auto begin_of = [&](u32 slice) { return slice * spans / slices; };
    const u32 first_slice = kSlices * blockIdx.z, slice = first_slice + warp_id() / kRowWarps;
    first = begin_of(slice);
    end = begin_of(slice + 1);
    most = (spans + slices - 1) / slices;
    first_of_block = begin_of(first_slice);
    end_of_block = begin_of(first_slice + kSlices);
  }
};

// Most blocks that divide the columns of a tile (ColumnSplit).
constexpr u32 kMostSplits = 8;

// The products of a block's tile, in shared memory until the block's next barrier, or those of all
// blocks that share the tile.
template <class Tile>
struct TileSums {
  static constexpr u32 kPart = Tile::kTokens * Tile::kSumStride;
  const float* slices;  // [kSlices][tokens][kSumStride], in shared memory
  float scale;          // of the single token
  const float* blocks = nullptr;  // [gridDim.z][tokens][kSumStride], once complete

  DEVICE_MEMBER float at(u32 row, u32 token) const {
    const u32 place = token * Tile::kSumStride + row;
    float sum = 0;
    if (blocks == nullptr) {
#pragma unroll
      for (u32 s = 0; s < kSlices; ++s) sum += slices[s * kPart + place];
      return sum;
    }
    // All loads are in flight together.
    float parts[kMostSplits];
#pragma unroll
    for (u32 z = 0; z < kMostSplits; ++z) {
      parts[z] = z < gridDim.z ? blocks[z * kPart + place] : 0.0f;
    }
#pragma unroll
    for (u32 z = 0; z < kMostSplits; ++z) sum += parts[z];
    return sum;
  }

  // Adds the sums of the other blocks of the tile; returns true in the last block to arrive, whose
  // sums are then complete.
  DEVICE_MEMBER bool complete(const ColumnSplit& split, u32 n_tokens) {
    if (gridDim.z == 1) return true;
    const u32 tile = blockIdx.y * gridDim.x + blockIdx.x;
    float* all = split.partial + u64(tile) * gridDim.z * kPart;
    for (u32 i = threadIdx.x; i < Tile::kRows * n_tokens; i += kThreads) {
      const u32 row = i % Tile::kRows, token = i / Tile::kRows;
      all[blockIdx.z * kPart + token * Tile::kSumStride + row] = at(row, token);
    }
    blocks = all;
    return is_last_arrival(split.arrivals + tile, gridDim.z);
  }
};

// The tiles of a gated product, whose weight has `width` rows of the gate and as many of `up`: of
// each 16 rows, eight are rows of the gate and eight the matching rows of `up`. Returns the row of
// the weight that is row i of the tiles; rows beyond the last repeat the last.
DEVICE u32 gated_row(u32 i, u32 width) {
  const u32 row = min(i / 16 * 8 + i % 8, width - 1);
  return i / 8 % 2 == 0 ? row : width + row;
}
// The row of the tile with the gate of output i; that of `up` comes eight rows later.
DEVICE u32 gate_in_tile(u32 i) { return i / 8 * 16 + i % 8; }

// The product of a block: `begin` requests the first weights, `multiply` needs x.
template <class F, class T, class Tile>
struct DecodeProduct {
  static constexpr u32 kRowTiles = Tile::kRowTiles, kTokenTiles = Tile::kTokenTiles;
  static constexpr u32 kAhead = ahead<F, Tile>();

  WeightRing<F, kRowTiles, kAhead> weights;
  SpanRange spans;

  // row_of(i): the row of the weight that is row i of the block's tile.
  template <class RowOf>
  explicit DEVICE_MEMBER DecodeProduct(const WeightRows& w, RowOf row_of) : spans(w.cols) {
    const u32 first = warp_id() % kRowWarps * 16 * kRowTiles;
    weights.begin(w, [&](u32 i) { return row_of(first + i); });
  }

  DEVICE_MEMBER void request() {
#pragma unroll
    for (u32 a = 0; a < kAhead; ++a) {
#pragma unroll
      for (u32 step = 0; step < kSteps<F>; ++step) load(a, step, spans.first + a);
    }
  }

  // One token, whose row of x is in F32. `memory`: the block's dynamic shared memory.
  DEVICE_MEMBER TileSums<Tile> multiply_row(void* memory, const float* x, const InputNorm& norm,
                                            RowStart& start) {
    uint4* row = static_cast<uint4*>(memory);
    const float scale =
        round_row<F>(T{}, row, x, norm, start, weights.cols, spans.first_of_block * kSpanUnits,
                     spans.end_of_block * kSpanUnits);
    __syncthreads();
    float sums[kRowTiles][kTokenTiles][4] = {};
    for (u32 span = spans.first; span < spans.end; span += kAhead) {
#pragma unroll
      for (u32 a = 0; a < kAhead; ++a) {
        if (span + a >= spans.end) break;
        add_span(sums, a, span + a, row + (span + a - spans.first_of_block) * kSpanUnits);
      }
    }
    return leave(memory, sums, scale);
  }

  // `count` tokens, whose rows of T are row_of(0), row_of(1), ..., of padded_cols.
  template <class RowOf>
  DEVICE_MEMBER TileSums<Tile> multiply_rows(void* memory, u32 count, u32 padded_cols,
                                             RowOf row_of) {
    constexpr u32 kSlotUnits = Tile::kTokens * kSpanUnits;
    uint4* ring = static_cast<uint4*>(memory) +
                  warp_id() / kRowWarps * Tile::kSlots * kSlotUnits;  // of the slice
    const auto copy = [&](u32 i) {
      const u32 span = spans.first + i;
      uint4* slot = ring + i % Tile::kSlots * kSlotUnits;
      if (span < spans.end) copy_span(slot, span, count, padded_cols, row_of);
      commit_copies();
    };
#pragma unroll
    for (u32 i = 0; i + 1 < Tile::kSlots; ++i) copy(i);
    const uint4* own = ring + lane_id() / 4 * kSpanUnits;
    float sums[kRowTiles][kTokenTiles][4] = {};
    for (u32 first = 0; first < spans.most; first += kAhead) {
#pragma unroll
      for (u32 a = 0; a < kAhead; ++a) {
        const u32 i = first + a;
        if (i >= spans.most) break;
        wait_copies<Tile::kSlots - 2>();
        // All copies of span i are visible, and no warp reads the slot of span i - 1 any more.
        __syncthreads();
        copy(i + Tile::kSlots - 1);
        if (spans.first + i < spans.end) {
          add_span(sums, a, spans.first + i, own + i % Tile::kSlots * kSlotUnits);
        }
      }
    }
    wait_copies<0>();
    return leave(memory, sums, 1.0f);
  }

 private:
  DEVICE_MEMBER void load(u32 slot, u32 step, u32 span) {
    if (span < spans.end) weights.load(slot, step, span);
  }

  // Adds the products of a span and requests its slot's next weights.
  DEVICE_MEMBER void add_span(float (&sums)[kRowTiles][kTokenTiles][4], u32 slot, u32 span,
                              const uint4* x) {
    constexpr u32 kTokenUnits = Tile::kOne ? 0 : kSpanUnits;
#pragma unroll
    for (u32 step = 0; step < kSteps<F>; ++step) {
      multiply_step<F, T, kTokenUnits>(sums, weights.chunks[slot][step], x, step);
      load(slot, step, span + kAhead);
    }
  }

  // Copies one span of x by the 64 threads of a slice.
  template <class RowOf>
  static DEVICE_MEMBER void copy_span(uint4* to, u32 span, u32 count, u32 padded_cols,
                                      RowOf row_of) {
    const u32 thread = threadIdx.x % (kRowWarps * kWarp), unit = thread % kSpanUnits;
    const u32 col = span * kSpan + unit * 8;
    constexpr u32 kTogether = kRowWarps * kWarp / kSpanUnits;
#pragma unroll
    for (u32 k = 0; k < Tile::kTokens / kTogether; ++k) {
      const u32 token = thread / kSpanUnits + k * kTogether;
      if (token >= count) break;
      const bool valid = col < padded_cols;
      copy_async_16(to + token * kSpanUnits + unit_place<F>(token, unit),
                    row_of(token) + (valid ? col : 0), valid);
    }
  }

  // Passes sums through shared memory, so that neighbouring threads store neighbouring rows.
  static DEVICE_MEMBER TileSums<Tile> leave(
      void* memory, const float (&sums)[kRowTiles][kTokenTiles][4], float scale) {
    float* partial = static_cast<float*>(memory);
    const u32 g = lane_id() / 4, t = lane_id() % 4, slice = warp_id() / kRowWarps;
    __syncthreads();
#pragma unroll
    for (u32 m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (u32 n = 0; n < kTokenTiles; ++n) {
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
          const u32 token = 8 * n + 2 * t + i % 2;
          const u32 row = (warp_id() % kRowWarps * kRowTiles + m) * 16 + g + i / 2 * 8;
          if (token < Tile::kTokens) {
            partial[(slice * Tile::kTokens + token) * Tile::kSumStride + row] = sums[m][n][i];
          }
        }
      }
    }
    __syncthreads();
    return {partial, scale};
  }
};

// The products of a block for its tokens of a set: calls store(row, i, token, sum_of) for output
// i = 0, 1, ... of the tile whose first row is `row`, and the row of each token; sum_of(r) is the
// product with row r of the tile. row_of(i): the row of the weight that is row i of all tiles
// together, which are n_rows. The tile has an output for each of `each` rows.
template <class F, class T, class Tile, class RowOf, class Store>
DEVICE void multiply_tile(void* memory, const ProductOperands& a, const ColumnSplit& split,
                          u32 n_rows, u32 each, RowOf row_of, Store store) {
  if constexpr (Tile::kHasRing) {
    const u32 tile_rows = ring_tile_rows(split.parts);
    multiply_by_ring<F, T, Tile::kTokens>(memory, a, split.parts,
                                          (n_rows + tile_rows - 1) / tile_rows,
                                          tile_rows / each, row_of, store);
  } else {
    const u32 first_row = blockIdx.y * Tile::kRows, outputs = Tile::kRows / each;
    DecodeProduct<F, T, Tile> product(a.weight, [&](u32 i) { return row_of(first_row + i); });
    if constexpr (!kDecodedByLoad<F>) product.request();
    wait_for_previous_kernel();
    const u32 first_token = blockIdx.x * Tile::kTokens;
    const float* x = nullptr;
    RowStart start;
    if constexpr (Tile::kOne) {
      u32 row = first_token;
      if (a.set.list != nullptr) {
        if (first_token >= load_now(a.set.count)) return;
        row = a.set.list[first_token];
      }
      // x has room for the rows of a whole grid, so the row is requested before its number arrives.
      x = static_cast<const float*>(a.x.data) + u64(row) * a.weight.cols;
      start = start_row(x, a.x.norm, a.weight.cols);
    }
    const u32 count = *a.set.count;
    if (first_token >= count) return;
    if constexpr (kDecodedByLoad<F>) product.request();

    const u32 n_tokens = min(count - first_token, Tile::kTokens);
    TileSums<Tile> sums;
    if constexpr (Tile::kOne) {
      sums = product.multiply_row(memory, x, a.x.norm, start);
    } else {
      sums = product.multiply_rows(memory, n_tokens, a.x.padded_cols, [&](u32 i) {
        return static_cast<const T*>(a.x.data) + u64(first_token + i) * a.x.padded_cols;
      });
    }
    if (!sums.complete(split, n_tokens)) return;
    for (u32 i = threadIdx.x; i < outputs * n_tokens; i += kThreads) {
      const u32 token = i / outputs;
      store(first_row, i % outputs, row_of_set(a.set, first_token + token), [&](u32 row) {
        return sums.at(row, token) * (Tile::kOne ? sums.scale : a.x.scale[first_token + token]);
      });
    }
  }
}

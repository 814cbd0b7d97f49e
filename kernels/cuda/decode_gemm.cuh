#pragma once

// The product of few tokens with a weight on tensor cores, bound by memory: the body of
// decode_gemm.cu, gated_decode_gemm.cu and grouped_decode_gemm.cu.
//
// Weights pass through shared memory: of one token in rings of warps (weight_ring.cuh), of others
// in a ring of the block (tile_ring.cuh). The rest of this file is for those of file blocks, and
// for several tokens of an expert: they go from memory into registers in 16-byte chunks, several in
// flight per lane.
//
// The rows are cut into spans of 128 columns. Four slices of each row have a quarter of the spans
// each; two warps compute the same slice of different rows, so that the eight warps of a block
// share x, which is in shared memory: all of it for one token, which the block rounds itself, else
// a ring of spans that are copied asynchronously from rows rounded by convert_rows.
//
// Where a weight has too few rows to fill the device, gridDim.z blocks divide the columns of a tile
// among themselves, and the last one to finish adds up their sums. Rings have the same parts.
//
// The sums of a token are added in the same order in every instance: within a slice in the order of
// the columns, then over the slices of a part, then over parts. They do not depend on the other
// tokens.

#include "activation.cuh"
#include "blocks.cuh"
#include "chunk_products.cuh"
#include "rounded_rows.cuh"
#include "row_set.cuh"
#include "tile_ring.cuh"
#include "weight_ring.cuh"

constexpr u32 kThreads = kRowThreads, kSlices = kPartSlices, kRowWarps = 2, kSpan = kSpanCols,
              kSpanUnits = kSpan / 8;

// The place of weights on their way to the tensor cores (ProductTile of csrc/cuda/plan_builder.h).
enum class Place { kRegisters, kWarpRings, kBlockRing };
template <class F, u32 token_tiles>
constexpr Place kPlace = kDecodedByLoad<F>  ? Place::kRegisters
                         : token_tiles == 0 ? Place::kWarpRings
                                            : Place::kBlockRing;
// Threads of a block, and blocks per multiprocessor, whose registers must suffice.
template <class F, u32 token_tiles>
constexpr u32 kProductThreads =
    kPlace<F, token_tiles> == Place::kBlockRing ? kTileThreads<token_tiles> : kThreads;
template <class F, u32 token_tiles>
constexpr u32 kResident = kPlace<F, token_tiles> == Place::kWarpRings ? 2 : 1;

// The tile of a block of weights in registers: eight tokens, or a single one if token_tiles is 0.
template <u32 token_tiles>
struct DecodeTile {
  static constexpr bool kOne = token_tiles == 0;
  static constexpr u32 kTokens = kOne ? 1 : 8;
  static constexpr u32 kRows = kRowWarps * 16;
  // Spans of x in shared memory, for several tokens.
  static constexpr u32 kSlots = 3;
  static constexpr u32 kSumStride = kRows + 4;
};

// Steps of a span: in one, four lanes have a chunk of each row.
template <class F>
constexpr u32 kSteps = kSpan / (4 * F::kCols);
// Spans of weights in flight: 8 to 16 chunks of 16 bytes a lane, as registers allow. All resident
// warps together have at least 32 KB in flight, enough for 3.35 TB/s of an H100.
template <class F>
constexpr u32 ahead() {
  constexpr u32 of_span = 2 * kSteps<F>, chunks = F::kRegisters <= 5 ? 16 : 8;
  return kDecodedByLoad<F> || of_span >= chunks ? 1 : chunks / of_span;
}

// The chunks of weights of a lane: those of its two rows.
template <class F, u32 spans>
struct WeightRegisters {
  typename F::Chunk chunks[spans][kSteps<F>][1][2] STEP_ZEROS;
  const u8* rows[2];
  u32 cols, n_chunks;
  const u64* codebooks;

  // row_of(i): the row of the weight that is row i of the warp's.
  template <class RowOf>
  DEVICE_MEMBER void begin(const WeightRows& w, RowOf row_of) {
    cols = w.cols;
    n_chunks = chunks_of<F>(w.cols);
    codebooks = w.codebooks;
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      rows[i] = w.data + u64(row_of(8 * i + lane_id() / 4)) * w.row_stride;
    }
  }

  // Chunks beyond the last repeat the last; x is zero there.
  DEVICE_MEMBER void load(u32 slot, u32 step, u32 span) {
    const u32 chunk = min((span * kSteps<F> + step) * 4 + lane_id() % 4, n_chunks - 1);
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      chunks[slot][step][0][i] = F::load(rows[i], cols, chunk, codebooks);
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
    to[unit_place<F>(0, unit) - first] =
        rounded_unit(type, x, norm, start, unit, cols, scale.factor);
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
    float parts[kMostParts];
#pragma unroll
    for (u32 z = 0; z < kMostParts; ++z) {
      parts[z] = z < gridDim.z ? blocks[z * kPart + place] : 0.0f;
    }
#pragma unroll
    for (u32 z = 0; z < kMostParts; ++z) sum += parts[z];
    return sum;
  }

  // Adds the sums of the other blocks of the tile; returns true in the last block to arrive, whose
  // sums are then complete.
  DEVICE_MEMBER bool complete(const Tiling& tiling, u32 n_tokens) {
    if (gridDim.z == 1) return true;
    const u32 tile = blockIdx.y * gridDim.x + blockIdx.x;
    float* all = tiling.partial + u64(tile) * gridDim.z * kPart;
    for (u32 i = threadIdx.x; i < Tile::kRows * n_tokens; i += kThreads) {
      const u32 row = i % Tile::kRows, token = i / Tile::kRows;
      all[blockIdx.z * kPart + token * Tile::kSumStride + row] = at(row, token);
    }
    blocks = all;
    return is_last_arrival(tiling.arrivals + tile, gridDim.z);
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
  static constexpr u32 kAhead = ahead<F>();

  WeightRegisters<F, kAhead> weights;
  SpanRange spans;

  // row_of(i): the row of the weight that is row i of the block's tile.
  template <class RowOf>
  explicit DEVICE_MEMBER DecodeProduct(const WeightRows& w, RowOf row_of) : spans(w.cols) {
    const u32 first = warp_id() % kRowWarps * 16;
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
    float sums[1][1][4] = {};
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
    float sums[1][1][4] = {};
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
  DEVICE_MEMBER void add_span(float (&sums)[1][1][4], u32 slot, u32 span,
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
  static DEVICE_MEMBER TileSums<Tile> leave(void* memory, const float (&sums)[1][1][4],
                                            float scale) {
    float* partial = static_cast<float*>(memory);
    const u32 g = lane_id() / 4, t = lane_id() % 4, slice = warp_id() / kRowWarps;
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      const u32 token = 2 * t + i % 2, row = warp_id() % kRowWarps * 16 + g + i / 2 * 8;
      if (token < Tile::kTokens) {
        partial[(slice * Tile::kTokens + token) * Tile::kSumStride + row] = sums[0][0][i];
      }
    }
    __syncthreads();
    return {partial, scale};
  }
};

// The products of a block for its tokens of a set. For output i = 0, 1, ... of the rows of which
// the first is `row`, and the row of each token, store.begin(row, i, token, sum_of) loads what the
// output depends on, sum_of(r) being the product with row r of those; store.finish() takes what it
// returned. row_of(i): the row of the weight that is row i of all tiles together, which are n_rows.
// There is an output for each of `each` rows.
template <class F, class T, u32 token_tiles, class RowOf, class Store>
DEVICE void multiply_tile(void* memory, const ProductOperands& a, const Tiling& tiling,
                          const SharedConversion& conversion, u32 n_rows, u32 each, RowOf row_of,
                          Store store) {
  const auto store_at_once = [&](u32 first, u32 i, u32 token, auto sum_of) {
    store.finish(store.begin(first, i, token, sum_of));
  };
  if constexpr (kPlace<F, token_tiles> == Place::kRegisters) {
    using Tile = DecodeTile<token_tiles>;
    const u32 first_row = blockIdx.y * Tile::kRows, outputs = Tile::kRows / each;
    DecodeProduct<F, T, Tile> product(a.weight, [&](u32 i) { return row_of(first_row + i); });
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
    product.request();

    const u32 n_tokens = min(count - first_token, Tile::kTokens);
    TileSums<Tile> sums;
    if constexpr (Tile::kOne) {
      sums = product.multiply_row(memory, x, a.x.norm, start);
    } else {
      sums = product.multiply_rows(memory, n_tokens, a.x.padded_cols, [&](u32 i) {
        return static_cast<const T*>(a.x.data) + u64(first_token + i) * a.x.padded_cols;
      });
    }
    if (!sums.complete(tiling, n_tokens)) return;
    for (u32 i = threadIdx.x; i < outputs * n_tokens; i += kThreads) {
      const u32 token = i / outputs;
      const float scale = Tile::kOne ? sums.scale : a.x.scale[first_token + token];
      store_at_once(first_row, i % outputs, row_of_set(a.set, first_token + token),
                    [&](u32 row) { return sums.at(row, token) * scale; });
    }
  } else if constexpr (kPlace<F, token_tiles> == Place::kWarpRings) {
    const u32 tile_rows = ring_tile_rows(tiling.parts);
    multiply_by_ring<F, T>(memory, a, tiling.parts, (n_rows + tile_rows - 1) / tile_rows,
                           tile_rows / each, row_of, store_at_once);
  } else {
    multiply_by_tiles<F, T, token_tiles>(memory, a, tiling, conversion, n_rows,
                                         16 * kRowTiles<token_tiles> / each, row_of, store);
  }
}

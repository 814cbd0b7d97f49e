#pragma once

// The product of many tokens with a 16-bit weight by the tensor cores of SM90: the body of
// wgmma_gemm.cu and wgmma_grouped_gemm.cu.
//
// Blocks are persistent: each takes every gridDim.x-th tile of 128 tokens by kRows rows. One thread
// has TMA copy slices of 64 columns to a ring of stages; TMA writes zeros for columns and rows
// beyond the last. Two consumer warpgroups multiply 64 tokens each with wgmma, and the copies for
// the next tile begin while they store the last one.
//
//   producer       x | weight   stage 0    stage 1    stage 2    stage 3    ...
//   consumer 0     tokens  0 ..  63   x    128 or 2 * 128 rows
//   consumer 1     tokens 64 .. 127   x    the same rows
//
// Shared memory, of 227 KiB: 4 stages of 48 KiB (of 32 for 128 rows), and 34 KiB through which
// sums pass, so that a warp stores 32 neighbouring rows of a token at once. Registers: 128 for the
// sums of 256 rows, of 232.
//
// Every product has 64 tokens by 128 rows by 16 columns, and a sum adds them in column order,
// whatever the number of tokens and rows of a tile. The digits of a token depend on its own row of
// x and on the weight alone.

#include "activation.cuh"
#include "device_sm90.cuh"
#include "panels.cuh"
#include "ring.cuh"
#include "warp.cuh"

// The instructions of SM90 are those of csrc/flash_attn/device.
namespace sm90 = flash_attn;

template <class T>
struct TensorCoreType;
template <>
struct TensorCoreType<f16> {
  using Type = sm90::f16;
};
template <>
struct TensorCoreType<bf16> {
  using Type = sm90::bf16;
};

constexpr u32 kTileTokens = 128, kTileCols = 64, kStages = 4;
constexpr u32 kConsumers = 2, kConsumerTokens = kTileTokens / kConsumers, kConsumerWarps = 4;
constexpr u32 kWgmmaThreads = 128 * (1 + kConsumers);
// Rows of a product.
constexpr u32 kProductRows = 128;
// A warp stores the sums of eight tokens and 128 rows at a time. Rows of 136 floats put the eight
// bytes of neighbouring lanes in different banks.
constexpr u32 kStagedTokens = 8, kStagedStride = kProductRows + 8;

// kProducts: 1 or 2 products of 128 rows in a tile.
template <u32 kProducts>
struct WgmmaTile {
  static constexpr u32 kRows = kProducts * kProductRows;
  using TokenPanel = sm90::PanelTile<kTileCols, kTileTokens>;
  using RowPanel = sm90::PanelTile<kTileCols, kRows>;
  static constexpr u32 kStageBytes = TokenPanel::kPanelBytes + RowPanel::kPanelBytes;
  static constexpr u32 kStagingBytes =
      kConsumers * kConsumerWarps * kStagedTokens * kStagedStride * sizeof(float);
  using Ring = sm90::StageBarriers<kStages>;
  static constexpr u32 kSharedBytes = kStages * kStageBytes + kStagingBytes + sizeof(Ring);

  static DEVICE_MEMBER char* tokens(u32 stage) {
    return sm90::dynamic_shared() + stage * kStageBytes;
  }
  static DEVICE_MEMBER char* rows(u32 stage) { return tokens(stage) + TokenPanel::kPanelBytes; }
  static DEVICE_MEMBER float* staging(u32 warp) {
    return reinterpret_cast<float*>(tokens(kStages)) + warp * kStagedTokens * kStagedStride;
  }
  static DEVICE_MEMBER Ring& ring() {
    return *reinterpret_cast<Ring*>(tokens(kStages) + kStagingBytes);
  }
};
// The host launches blocks with these (csrc/cuda/plan_wgmma_products.cpp).
static_assert(WgmmaTile<1>::kSharedBytes == 165952 && WgmmaTile<2>::kSharedBytes == 231488);

// A tile: rows of the tensor of x from first_token on, of which `count` are its own, and rows of
// one matrix of the tensor of the weight.
struct TileAt {
  u32 first_token;
  u32 count;
  u32 first_row;
  u32 matrix;
};

// The results of a tile: out = residual + alpha * activation(sum * scale + bias), as in
// store_product. bias begins at the matrix's first row, and scale at the tile's first token.
struct TileOutput {
  float* out;
  const float* scale;
  Epilogue epilogue;
  u32 rows;  // of the matrix
};

// Copies the slices of a block's tiles, one after another: copy(stage, barrier, step, tile) starts
// the copies of a stage. Called by one thread.
template <class Tile, class At, class Copy>
DEVICE void copy_tiles(u32 n_tiles, u32 n_steps, At at, Copy copy) {
  auto& ring = Tile::ring();
  sm90::StageCounter<int(kStages)> stages;
  for (u32 i = blockIdx.x; i < n_tiles; i += gridDim.x) {
    const TileAt tile = at(i);
#pragma unroll 1
    for (u32 step = 0; step < n_steps; ++step, ++stages.count) {
      const int stage = stages.stage();
      sm90::barrier_wait(ring.empty[stage], stages.parity() ^ 1);
      sm90::barrier_arrive_expecting(ring.full[stage], Tile::kStageBytes);
      copy(stage, ring.full[stage], step, tile);
    }
  }
}

// The sums of a warpgroup's 64 tokens and 128 rows, as wgmma leaves them: in a warp, the lane 4 g +
// t holds tokens g and g + 8 of its 16, and rows 8 n + 2 t and 8 n + 2 t + 1.
using ProductSums = float[1][kProductRows / 8][4];

// The same instructions wherever a token is in a tile, so that its digits do not depend on it.
DEVICE float finished(float sum, float scale, float bias, u32 activation, float alpha,
                      float residual) {
  return fmaf(alpha, activate(activation, fmaf(sum, scale, bias)), residual);
}

// Stores eight of a warp's tokens, `upper` those from 8 on, and 128 rows; `row_of(i)` is the row of
// out of the tile's token i.
template <class RowOf>
DEVICE void store_sums(const ProductSums& sums, u32 upper, float* staged, const TileOutput& to,
                       u32 first_token, u32 count, u32 first_row, RowOf row_of) {
  constexpr u32 kEach = kProductRows / kWarp;
  if (first_token >= count || first_row >= to.rows) return;
  const u32 lane = lane_id(), g = lane / 4, t = lane % 4;
  const Epilogue& e = to.epilogue;
#pragma unroll
  for (u32 n = 0; n < kProductRows / 8; ++n) {
    *reinterpret_cast<float2*>(staged + g * kStagedStride + n * 8 + 2 * t) =
        make_float2(sums[0][n][2 * upper], sums[0][n][2 * upper + 1]);
  }
  __syncwarp();
  staged += lane;
  first_row += lane;
  const bool is_whole = first_token + kStagedTokens <= count &&
                        first_row - lane + kProductRows <= to.rows;
  if (is_whole && !e.activation) {
    u64 at[kStagedTokens];
    float residual[kStagedTokens][kEach] = {}, scale[kStagedTokens], bias[kEach] = {};
#pragma unroll
    for (u32 i = 0; i < kStagedTokens; ++i) {
      at[i] = u64(row_of(first_token + i)) * e.out_stride + first_row;
      scale[i] = to.scale[first_token + i];
    }
    // All loads are in flight together.
    if (e.residual) {
#pragma unroll
      for (u32 i = 0; i < kStagedTokens; ++i) {
#pragma unroll
        for (u32 k = 0; k < kEach; ++k) residual[i][k] = e.residual[at[i] + k * kWarp];
      }
    }
    if (e.bias) {
#pragma unroll
      for (u32 k = 0; k < kEach; ++k) bias[k] = e.bias[first_row + k * kWarp];
    }
#pragma unroll
    for (u32 i = 0; i < kStagedTokens; ++i) {
#pragma unroll
      for (u32 k = 0; k < kEach; ++k) {
        to.out[at[i] + k * kWarp] = finished(staged[i * kStagedStride + k * kWarp], scale[i],
                                             bias[k], 0, e.alpha, residual[i][k]);
      }
    }
  } else {
#pragma unroll 1
    for (u32 i = 0; i < kStagedTokens && first_token + i < count; ++i) {
#pragma unroll 1
      for (u32 k = 0; k < kEach && first_row + k * kWarp < to.rows; ++k) {
        const u32 row = first_row + k * kWarp;
        const u64 at = u64(row_of(first_token + i)) * e.out_stride + row;
        to.out[at] = finished(staged[i * kStagedStride + k * kWarp], to.scale[first_token + i],
                              e.bias ? e.bias[row] : 0.0f, e.activation, e.alpha,
                              e.residual ? e.residual[at] : 0.0f);
      }
    }
  }
  __syncwarp();
}

// Multiplies and stores a block's tiles; `output(i, tile)` is the output of tile i, and
// `row_of(tile, token)` the row of out of a token of the tile. Called by a consumer warpgroup.
template <class T, u32 kProducts, class At, class Output, class RowOf>
DEVICE void multiply_tiles(u32 consumer, u32 n_tiles, u32 n_steps, At at, Output output,
                           RowOf row_of) {
  using Tile = WgmmaTile<kProducts>;
  using Product = sm90::WarpgroupProduct<typename TensorCoreType<T>::Type, int(kProductRows)>;
  // Distances in the low words of descriptors, which count 16 bytes.
  constexpr u32 kStageStep = Tile::kStageBytes / 16;
  constexpr u32 kProductStep = kProductRows * kTileCols * 2 / 16;
  auto& ring = Tile::ring();
  const u32 warp = sm90::warp_uniform(int(threadIdx.x / kWarp)) % kConsumerWarps;
  const u32 first = consumer * kConsumerTokens;
  const u32 x = Tile::TokenPanel::depth_contiguous(Tile::tokens(0), int(first));
  const u32 weight = Tile::RowPanel::depth_contiguous(Tile::rows(0), 0);
  const auto release = [&](int stage) {
    if (lane_id() == 0) sm90::barrier_arrive(ring.empty[stage]);
  };
  sm90::StageCounter<int(kStages)> stages;
  for (u32 i = blockIdx.x; i < n_tiles; i += gridDim.x) {
    const TileAt tile = at(i);
    if (first >= tile.count) {
      // No tokens for this consumer: it only lets the stages pass.
      for (u32 step = 0; step < n_steps; ++step, ++stages.count) {
        sm90::barrier_wait(ring.full[stages.stage()], stages.parity());
        __syncwarp();
        release(stages.stage());
      }
      continue;
    }
    ProductSums sums[kProducts];
#pragma unroll 1
    for (u32 step = 0; step < n_steps; ++step, ++stages.count) {
      const int stage = stages.stage();
      sm90::barrier_wait(ring.full[stage], stages.parity());
      sm90::product_fence();
#pragma unroll
      for (u32 k = 0; k < kTileCols / 16; ++k) {
#pragma unroll
        for (u32 p = 0; p < kProducts; ++p) {
          Product::from_shared(
              sums[p], Tile::TokenPanel::depth_step(x + stage * kStageStep, int(k)),
              Tile::RowPanel::depth_step(weight + stage * kStageStep + p * kProductStep, int(k)),
              step > 0 || k > 0);
        }
      }
      sm90::product_commit();
      // The products of the step before have ended, and their stage may be filled again.
      sm90::product_wait<1>();
      if (step > 0) release((stage + int(kStages) - 1) % int(kStages));
    }
    sm90::product_wait<0>();
    release((stages.stage() + int(kStages) - 1) % int(kStages));
    float* const staged = Tile::staging(consumer * kConsumerWarps + warp);
    const TileOutput to = output(tile);
#pragma unroll
    for (u32 upper = 0; upper < 2; ++upper) {
#pragma unroll
      for (u32 p = 0; p < kProducts; ++p) {
        store_sums(sums[p], upper, staged, to, first + 16 * warp + 8 * upper, tile.count,
                   tile.first_row + p * kProductRows,
                   [&](u32 token) { return row_of(tile, token); });
      }
    }
  }
}

// Prepares the shared memory of a block. All threads must call this; a barrier must follow.
template <class Tile, class... Maps>
DEVICE void begin_tiles(const Maps&... maps) {
  if (threadIdx.x != 0) return;
  (sm90::prefetch_tensor_map(maps), ...);
  // Each warp of the consumers arrives once.
  Tile::ring().init(kConsumers * kConsumerWarps);
  sm90::barrier_init_fence();
}

// Calls copy() in one thread, and multiply(consumer) in the threads of each consumer warpgroup. All
// threads of the block must call this.
template <class Copy, class Multiply>
DEVICE void divide_work(Copy copy, Multiply multiply) {
  const u32 warp = sm90::warp_uniform(int(threadIdx.x / kWarp));
  if (warp < kConsumerWarps) {
    sm90::release_registers<24>();
    if (threadIdx.x == 0) copy();
  } else {
    sm90::take_registers<240>();
    multiply(warp / kConsumerWarps - 1);
  }
}

// Computes the tiles at(i) of all i < n_tiles. All threads of the block must call this; parameters
// as in copy_tiles and multiply_tiles.
template <class T, u32 kProducts, class At, class Output, class RowOf>
DEVICE void compute_tiles(const sm90::TensorMap& x, const sm90::TensorMap& weight, u32 n_tiles,
                          u32 n_steps, At at, Output output, RowOf row_of) {
  using Tile = WgmmaTile<kProducts>;
  divide_work(
      [&] {
        copy_tiles<Tile>(n_tiles, n_steps, at,
                         [&](int stage, sm90::Barrier& full, u32 step, const TileAt& tile) {
                           const int column = step * kTileCols;
                           sm90::copy_box(Tile::tokens(stage), x, full, sm90::evicted_in_turn(),
                                          column, tile.first_token, 0, 0);
                           sm90::copy_box(Tile::rows(stage), weight, full, sm90::evicted_in_turn(),
                                          column, tile.first_row, tile.matrix, 0);
                         });
      },
      [&](u32 consumer) {
        multiply_tiles<T, kProducts>(consumer, n_tiles, n_steps, at, output, row_of);
      });
}

// Rows of the weight in a group of tiles. Blocks that run together share the rows of a group and
// the tokens of some tiles, about as many bytes of each, which stay in L2.
constexpr u32 kGroupRows = 2048;

// Tile i of a product without groups: groups of rows one after another; in a group, all tiles of
// the first 128 tokens, then of the next.
template <u32 kTileRows>
DEVICE TileAt tile_in_groups(u32 i, u32 rows, u32 tokens) {
  constexpr u32 kGroup = kGroupRows / kTileRows;
  const u32 row_tiles = (rows + kTileRows - 1) / kTileRows;
  const u32 token_tiles = (tokens + kTileTokens - 1) / kTileTokens;
  const u32 group = i / (kGroup * token_tiles), place = i % (kGroup * token_tiles);
  const u32 width = min(kGroup, row_tiles - group * kGroup);
  const u32 first = place / width * kTileTokens;
  return {first, min(kTileTokens, tokens - first), (group * kGroup + place % width) * kTileRows, 0};
}

// Tile i of a product with experts: all rows of each tile of pairs, one after another.
DEVICE TileAt tile_of_pairs(const ExpertPairs& e, u32 i, u32 row_tiles, u32 tile_rows) {
  const MoeTile pairs = e.tiles[i / row_tiles];
  return {pairs.first, pairs.count, i % row_tiles * tile_rows, pairs.expert};
}

DEVICE TileOutput output_of_pairs(const ProductOperands& a, const ExpertPairs& e,
                                  const TileAt& tile) {
  const u32 rows = a.weight.rows;
  const float* bias = e.bias ? e.bias + u64(tile.matrix) * rows : nullptr;
  return {a.out, a.x.scale + tile.first_token, {bias, nullptr, 1.0f, 0, rows}, rows};
}

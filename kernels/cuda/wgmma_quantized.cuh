#pragma once

// The product of many tokens with a quantised weight by the tensor cores of SM90: the body of
// wgmma_quantized_gemm.cu and wgmma_grouped_quantized_gemm.cu.
//
// Blocks, tiles and the ring are those of wgmma_gemm.cuh, but the weight is the left operand, which
// wgmma takes from registers: it never passes through shared memory, whose bandwidth would be the
// bound. Each lane of a consumer loads its chunks of 16 bytes of quants (formats.cuh) a step of 128
// columns ahead, and unpacks those of 32 columns while the tensor cores multiply the 32 before.
//
//   producer       x         stage 0    stage 1    stage 2    stage 3    ...
//   consumer 0     the first half of a tile's rows    x    64 or 2 * 64 tokens
//   consumer 1     the second half                    x    the same tokens
//
// A warp has 16 or 2 * 16 adjacent rows. In a product of 16 columns, the lane 4 g + t holds columns
// 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of rows g and g + 8. So that these are neighbours in a chunk,
// convert_rows and convert_pairs write the columns of x in another order (column_in_chunks), and
// the product takes the columns in this order.
//
// Shared memory: 4 stages of 32 KiB, and up to 18 KiB through which sums pass. Registers: 128 for
// the sums of 256 rows, 32 for unpacked weights, up to 36 each for the chunks of two steps.
//
// Every product has 64 rows by 64 tokens by 16 columns, and a sum adds them in one order, whatever
// the number of tokens and rows of a tile. The digits of a token depend on its own row of x and on
// the weight alone.

#include "formats.cuh"
#include "wgmma_gemm.cuh"

constexpr u32 kStepCols = 128, kProductTokens = 64;
constexpr u32 kHalves = kTileTokens / kProductTokens;
// Units of eight columns that a lane has of a row in a step; tokens that a warp stores at once.
constexpr u32 kLaneUnits = kStepCols / 4 / 8, kBatchTokens = 16;

// kProducts: 1 or 2 products of 64 rows by a consumer.
template <u32 kProducts>
struct QuantizedTile {
  static constexpr u32 kWarpRows = 16 * kProducts;
  static constexpr u32 kRows = kConsumers * kConsumerWarps * kWarpRows;
  using TokenPanel = sm90::PanelTile<kTileCols, kTileTokens>;
  static constexpr u32 kStageBytes = kStepCols / kTileCols * TokenPanel::kPanelBytes;
  // Four tokens further on, a row is in another bank than those of the lanes before.
  static constexpr u32 kStagedStride = kWarpRows + 4;
  static constexpr u32 kStagedNumbers = kBatchTokens * kStagedStride;
  static constexpr u32 kStagingBytes =
      kConsumers * kConsumerWarps * kStagedNumbers * sizeof(float);
  using Ring = sm90::StageBarriers<kStages>;
  static constexpr u32 kSharedBytes = kStages * kStageBytes + kStagingBytes + sizeof(Ring);

  static DEVICE_MEMBER char* tokens(u32 stage) {
    return sm90::dynamic_shared() + stage * kStageBytes;
  }
  static DEVICE_MEMBER float* staging(u32 warp) {
    return reinterpret_cast<float*>(tokens(kStages)) + warp * kStagedNumbers;
  }
  static DEVICE_MEMBER Ring& ring() {
    return *reinterpret_cast<Ring*>(tokens(kStages) + kStagingBytes);
  }
};
// The host launches blocks with these (csrc/cuda/plan_wgmma_products.cpp).
static_assert(QuantizedTile<1>::kSharedBytes == 141376 && QuantizedTile<2>::kSharedBytes == 149568);

// The weights of a lane in a step: of rows g and g + 8 of each product.
template <class F, u32 kProducts>
struct LaneChunks {
  static constexpr u32 kEach = kStepCols / 4 / F::kCols;
  typename F::Chunk of[kProducts][2][kEach];

  // The 16-bit weights of unit u of a lane: left operands of two products of 16 columns.
  template <class T>
  DEVICE_MEMBER void unpack(u32 (&to)[2][kProducts][4], u32 u) const {
    constexpr u32 kUnits = F::kCols / 8;
#pragma unroll
    for (u32 p = 0; p < kProducts; ++p) {
      const uint4 upper = F::template words<T>(of[p][0][u / kUnits], u % kUnits);
      const uint4 lower = F::template words<T>(of[p][1][u / kUnits], u % kUnits);
      to[0][p][0] = upper.x;
      to[0][p][1] = lower.x;
      to[0][p][2] = upper.y;
      to[0][p][3] = lower.y;
      to[1][p][0] = upper.z;
      to[1][p][1] = lower.z;
      to[1][p][2] = upper.w;
      to[1][p][3] = lower.w;
    }
  }
};

// Loads the chunks of a lane.
template <class F, u32 kProducts>
struct RowLoader {
  using Chunks = LaneChunks<F, kProducts>;
  const u8* data;            // of the warp's first row
  u32 offset[kProducts][2];  // of the lane's rows
  u32 cols, n_chunks;
  const u64* codebooks;

  // first_row: of the warp, in the tile's matrix. Rows beyond the last repeat the last.
  DEVICE_MEMBER void begin(const WeightRows& w, u32 matrix, u32 first_row) {
    first_row = min(first_row, w.rows - 1);
    data = w.data + (u64(matrix) * w.rows + first_row) * w.row_stride;
    cols = w.cols;
    n_chunks = chunks_of<F>(w.cols);
    codebooks = w.codebooks;
#pragma unroll
    for (u32 p = 0; p < kProducts; ++p) {
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        offset[p][i] = min(16 * p + 8 * i + lane_id() / 4, w.rows - 1 - first_row) *
                       u32(w.row_stride);
      }
    }
  }

  // Chunk k of a step. Chunks beyond the last repeat the last; x is zero there.
  DEVICE_MEMBER void load(Chunks& to, u32 step, u32 k) const {
    const u32 chunk = min((step * Chunks::kEach + k) * 4 + lane_id() % 4, n_chunks - 1);
#pragma unroll
    for (u32 p = 0; p < kProducts; ++p) {
#pragma unroll
      for (u32 i = 0; i < 2; ++i) {
        to.of[p][i][k] = F::load(data + offset[p][i], cols, chunk, codebooks);
      }
    }
  }
};

// The sums of a warp, of each product and each 64 tokens: the lane 4 g + t has rows g and g + 8, of
// tokens 8 n + 2 t and 8 n + 2 t + 1.
template <u32 kProducts>
using RowSums = float[kProducts][kHalves][1][kProductTokens / 8][4];

// Stores kBatchTokens of a warp's tokens; `row_of(i)` is the row of out of the tile's token i.
template <u32 kProducts, class RowOf>
DEVICE void store_batch(const RowSums<kProducts>& sums, u32 first_token, float* staged,
                        const TileOutput& to, u32 count, u32 first_row, RowOf row_of) {
  using Tile = QuantizedTile<kProducts>;
  // Tokens that a warp stores together.
  constexpr u32 kTogether = kWarp / Tile::kWarpRows, kEach = kBatchTokens / kTogether;
  const u32 half = first_token / kProductTokens, first_n = first_token % kProductTokens / 8;
  if (first_token >= count || first_row >= to.rows) return;
  const u32 g = lane_id() / 4, t = lane_id() % 4;
  const Epilogue& e = to.epilogue;
#pragma unroll
  for (u32 n = 0; n < kBatchTokens / 8; ++n) {
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      const u32 token = 8 * n + 2 * t + i;
      const float scale = to.scale[min(first_token + token, count - 1)];
#pragma unroll
      for (u32 p = 0; p < kProducts; ++p) {
#pragma unroll
        for (u32 lower = 0; lower < 2; ++lower) {
          staged[token * Tile::kStagedStride + 16 * p + 8 * lower + g] =
              sums[p][half][0][first_n + n][2 * lower + i] * scale;
        }
      }
    }
  }
  __syncwarp();
  const u32 row = first_row + lane_id() % Tile::kWarpRows, first = lane_id() / Tile::kWarpRows;
  staged += first * Tile::kStagedStride + lane_id() % Tile::kWarpRows;
  const bool is_whole = first_token + kBatchTokens <= count &&
                        first_row + Tile::kWarpRows <= to.rows;
  if (is_whole && !e.activation) {
    const float bias = e.bias ? e.bias[row] : 0.0f;
    u32 out_rows[kEach];
    float residual[kEach] = {};
#pragma unroll
    for (u32 i = 0; i < kEach; ++i) out_rows[i] = row_of(first_token + i * kTogether + first);
    // All loads are in flight together.
    if (e.residual) {
#pragma unroll
      for (u32 i = 0; i < kEach; ++i) {
        residual[i] = e.residual[u64(out_rows[i]) * e.out_stride + row];
      }
    }
#pragma unroll
    for (u32 i = 0; i < kEach; ++i) {
      to.out[u64(out_rows[i]) * e.out_stride + row] = finished(
          staged[i * kTogether * Tile::kStagedStride], 1.0f, bias, 0, e.alpha, residual[i]);
    }
  } else if (row < to.rows) {
    const float bias = e.bias ? e.bias[row] : 0.0f;
#pragma unroll 1
    for (u32 i = 0; i < kBatchTokens && first_token + i + first < count; i += kTogether) {
      const u64 at = u64(row_of(first_token + i + first)) * e.out_stride + row;
      to.out[at] = finished(staged[i * Tile::kStagedStride], 1.0f, bias, e.activation, e.alpha,
                            e.residual ? e.residual[at] : 0.0f);
    }
  }
  __syncwarp();
}

// Multiplies the rows of a consumer warp with the first `halves` * 64 tokens of a tile. `chunks`
// are those of the first step.
template <class F, class T, u32 kProducts, u32 halves, class Stages>
DEVICE void multiply_columns(RowSums<kProducts>& sums, const RowLoader<F, kProducts>& loader,
                             LaneChunks<F, kProducts>& chunks, u32 n_steps, Stages& stages) {
  using Tile = QuantizedTile<kProducts>;
  using Product =
      sm90::WarpgroupProduct<typename TensorCoreType<T>::Type, int(kProductTokens)>;
  // Distances in the low words of descriptors, which count 16 bytes.
  constexpr u32 kStageStep = Tile::kStageBytes / 16;
  constexpr u32 kHalfStep = kProductTokens * kTileCols * 2 / 16;
  auto& ring = Tile::ring();
  const u32 x = Tile::TokenPanel::depth_contiguous(Tile::tokens(0), 0);
  const auto release = [&](int stage) {
    if (lane_id() == 0) sm90::barrier_arrive(ring.empty[stage]);
  };
  constexpr u32 kEach = LaneChunks<F, kProducts>::kEach;
  u32 weights[2][2][kProducts][4];
#pragma unroll 1
  for (u32 step = 0; step < n_steps; ++step, ++stages.count) {
    const int stage = stages.stage();
    LaneChunks<F, kProducts> next;
#pragma unroll
    for (u32 u = 0; u < kLaneUnits; ++u) {
      auto& operands = weights[u % 2];
      chunks.template unpack<T>(operands, u);
      // The chunks of the next step are requested half a step before, when registers are free.
      if (step + 1 < n_steps) {
        if constexpr (kEach == 1) {
          if (u == kLaneUnits / 2 - 1) loader.load(next, step + 1, 0);
        } else if (u % 2 == 1) {
          loader.load(chunks, step + 1, u / 2);
        }
      }
      if (u == 0) sm90::barrier_wait(ring.full[stage], stages.parity());
      sm90::product_fence();
#pragma unroll
      for (u32 k = 0; k < 2; ++k) {
#pragma unroll
        for (u32 p = 0; p < kProducts; ++p) {
#pragma unroll
          for (u32 half = 0; half < halves; ++half) {
            Product::from_registers_by_depth(
                sums[p][half], operands[k][p],
                Tile::TokenPanel::depth_step(x + stage * kStageStep + half * kHalfStep,
                                             int(2 * u + k)));
          }
        }
      }
      sm90::product_commit();
      // The products before have ended: their operands may be replaced, and of the last step, its
      // stage filled again.
      sm90::product_wait<1>();
      if (u == 0 && step > 0) release((stage + int(kStages) - 1) % int(kStages));
    }
    if constexpr (kEach == 1) chunks = next;
  }
  sm90::product_wait<0>();
  release((stages.stage() + int(kStages) - 1) % int(kStages));
}

// Multiplies and stores a block's tiles; parameters as in multiply_tiles. Called by a consumer
// warpgroup.
template <class F, class T, u32 kProducts, class Count, class At, class Output, class RowOf>
DEVICE void multiply_rows(u32 consumer, const WeightRows& w, Count n_tiles, u32 n_steps, At at,
                          Output output, RowOf row_of) {
  using Tile = QuantizedTile<kProducts>;
  const u32 warp = consumer * kConsumerWarps +
                   sm90::warp_uniform(int(threadIdx.x / kWarp)) % kConsumerWarps;
  float* const staged = Tile::staging(warp);
  TileAt* const kept = reinterpret_cast<TileAt*>(staged);
  sm90::StageCounter<int(kStages)> stages;
  RowLoader<F, kProducts> loader;
  LaneChunks<F, kProducts> chunks;
  const auto begin = [&](TileAt tile) {
    tile.first_row += warp * Tile::kWarpRows;
    loader.begin(w, tile.matrix, tile.first_row);
#pragma unroll
    for (u32 k = 0; k < LaneChunks<F, kProducts>::kEach; ++k) loader.load(chunks, 0, k);
  };
  if (blockIdx.x < n_tiles()) begin(at(blockIdx.x));
#pragma unroll 1
  for (u32 i = blockIdx.x; i < n_tiles(); i += gridDim.x) {
    RowSums<kProducts> sums = {};
    {
      const TileAt tile = at(i);
      // Kept in shared memory instead of registers.
      if (lane_id() == 0) *kept = tile;
      if (tile.count > kProductTokens) {
        multiply_columns<F, T, kProducts, 2>(sums, loader, chunks, n_steps, stages);
      } else {
        multiply_columns<F, T, kProducts, 1>(sums, loader, chunks, n_steps, stages);
      }
    }
    __syncwarp();
    const TileAt tile = *kept;
    const TileOutput to = output(tile);
    __syncwarp();
#pragma unroll
    for (u32 first = 0; first < kTileTokens; first += kBatchTokens) {
      // The sums before have left registers for the first chunks of the next tile.
      if (first + kBatchTokens == kTileTokens) {
        begin(at(i + gridDim.x < n_tiles() ? i + gridDim.x : i));
      }
      store_batch<kProducts>(sums, first, staged, to, tile.count,
                             tile.first_row + warp * Tile::kWarpRows,
                             [&](u32 token) { return row_of(tile, token); });
    }
  }
}

// Computes the tiles at(i) of all i < n_tiles. All threads of the block must call this; parameters
// as in multiply_tiles.
template <class F, class T, u32 kProducts, class Count, class At, class Output, class RowOf>
DEVICE void compute_quantized_tiles(const sm90::TensorMap& x, const WeightRows& w, Count n_tiles,
                                    u32 n_steps, At at, Output output, RowOf row_of) {
  using Tile = QuantizedTile<kProducts>;
  divide_work(
      [&] {
        copy_tiles<Tile>(
            n_tiles(), n_steps, at,
            [&](int stage, sm90::Barrier& full, u32 step, const TileAt& tile) {
              const int column = step * kStepCols;
              char* const to = Tile::tokens(stage);
#pragma unroll
              for (u32 panel = 0; panel < kStepCols / kTileCols; ++panel) {
                sm90::copy_box(to + panel * Tile::TokenPanel::kPanelBytes, x, full,
                               sm90::evicted_in_turn(), column + panel * kTileCols,
                               tile.first_token, 0, 0);
              }
            });
      },
      [&](u32 consumer) {
        multiply_rows<F, T, kProducts>(consumer, w, n_tiles, n_steps, at, output, row_of);
      });
}

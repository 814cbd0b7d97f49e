#pragma once

// The product of one token with a weight, bound by memory: decode_gemm.cu, gated_decode_gemm.cu and
// grouped_decode_gemm.cu compute it by this for the formats of formats.cuh.
//
// Weights pass through shared memory. Each warp has a ring of stages of its own, which it fills by
// asynchronous copies and empties in order, so that warps wait for each other only where they add
// up a tile. The rings of the two blocks of a multiprocessor hold 144 KB. They are filled before
// the wait for the previous kernel: while that kernel ends, and this one reads its row of x, memory
// delivers weights. Registers would hold half as much.
//
// Each block rounds the row of x to 16 bits a number, in shared memory.
//
// The grid has at most the blocks that the device runs at once, each with a range of tiles. A block
// takes its tiles one after another; copies of the next begin while one is multiplied.
//
// The columns of a row are cut into slices, four for each of `parts` (Tiling). Each warp sums
// up its slices in the order of columns; the slices of a part are added up, then the parts. That is
// the order of decode_gemm.cuh for several tokens.

#include "chunk_products.cuh"
#include "rounded_rows.cuh"
#include "row_set.cuh"
#include "weight_spans.cuh"

// Rows of a warp's tile; two such tiles share a slice if there are just four slices.
constexpr u32 kRingRows = 16, kRingWarps = kRowThreads / kWarp;

// Bytes of a warp's ring. Two blocks fit into a multiprocessor of SM90, and one into those of SM86
// and SM89.
constexpr u32 kRingBytes = 9216;
template <class F>
constexpr u32 kStageBytes = kRingRows * WeightSpans<F>::kRowBytes;
template <class F>
constexpr u32 kRingStages = kRingBytes / kStageBytes<F>;

// The slices of a warp, of all those of a tile.
struct WarpSlices {
  u32 first, end, row;  // row: the warp's first row of the tile

  explicit DEVICE_MEMBER WarpSlices(u32 parts) {
    const u32 slices = kPartSlices * parts, warp = warp_id();
    if (parts == 1) {
      first = warp / 2;
      end = first + 1;
      row = warp % 2 * kRingRows;
    } else {
      const u32 each = (slices + kRingWarps - 1) / kRingWarps;
      first = min(warp * each, slices);
      end = min(first + each, slices);
      row = 0;
    }
  }
};

// Rows of a tile.
DEVICE u32 ring_tile_rows(u32 parts) { return parts == 1 ? 2 * kRingRows : kRingRows; }

// A block's product. row_of(i): the row of the weight that is row i of all tiles together. Shared
// memory: the rings; the sums of the slices of a tile, twice, since warps begin the next tile while
// some threads add up one; the row of x.
template <class F, class T, class RowOf>
class RingProduct {
  using Spans = WeightSpans<F>;
  static constexpr u32 kStages = kRingStages<F>;

 public:
  // first_tile .. end_tile - 1: the block's tiles. memory: the block's dynamic shared memory
  // (ProductTile of csrc/cuda/plan_builder.h).
  DEVICE_MEMBER RingProduct(void* memory, const WeightRows& w, u32 parts, u32 first_tile,
                            u32 end_tile, RowOf row_of)
      : w_(w),
        row_of_(row_of),
        parts_(parts),
        first_tile_(first_tile),
        end_tile_(end_tile),
        slices_(parts),
        ring_(static_cast<u8*>(memory) + warp_id() * kRingBytes),
        sums_(reinterpret_cast<float*>(static_cast<u8*>(memory) + kRingWarps * kRingBytes)),
        x_(reinterpret_cast<uint4*>(sums_ + 2 * tile_sums())),
        tile_(first_tile),
        stage_(begin_of(slices_.first)),
        first_stage_(stage_),
        end_stage_(begin_of(slices_.end)) {}

  // Requests the first weights.
  DEVICE_MEMBER void request() {
    // A warp without columns has no stages.
    if (first_stage_ == end_stage_) tile_ = end_tile_;
    if (tile_ < end_tile_) place_rows();
#pragma unroll 1
    for (u32 i = 0; i + 1 < kStages; ++i) copy_stage();
  }

  // Rounds the row of x to shared memory; all threads of the block.
  DEVICE_MEMBER void round_x(const float* x, const InputNorm& norm, RowStart& start) {
    const RowScale scale = scale_of_row(T{}, x, norm, start, w_.cols);
    for (u32 unit = threadIdx.x; unit < row_units(); unit += kRowThreads) {
      x_[unit_place<F>(0, unit)] = rounded_unit(T{}, x, norm, start, unit, w_.cols, scale.factor);
    }
    scale_ = scale.product;
    __syncthreads();
  }

  // Multiplies the tiles: calls store(row, i, sum_of) for output i of the tile whose first row is
  // `row`; sum_of(r) is the product with row r of the tile. `outputs`: those of a tile.
  template <class Store>
  DEVICE_MEMBER void multiply(u32 outputs, Store store) {
    const u32 tile_rows = ring_tile_rows(parts_);
    for (u32 tile = first_tile_; tile < end_tile_; ++tile) {
      float* sums = sums_ + (tile - first_tile_) % 2 * tile_sums();
      for (u32 slice = slices_.first; slice < slices_.end; ++slice) {
        float own[1][1][4] = {};
        const u32 end = begin_of(slice + 1);
#pragma unroll 1
        for (u32 stage = begin_of(slice); stage < end; ++stage) add_stage(own, stage);
        // All lanes have the same token; those with its first column store.
        float* to = sums + slice * tile_rows + slices_.row + lane_id() / 4;
        if (lane_id() % 4 == 0) {
          to[0] = own[0][0][0];
          to[8] = own[0][0][2];
        }
      }
      __syncthreads();
      for (u32 i = threadIdx.x; i < outputs; i += kRowThreads) {
        store(tile * tile_rows, i, [&](u32 row) { return sum_of(sums + row, tile_rows) * scale_; });
      }
    }
    wait_copies<0>();
  }

 private:
  DEVICE_MEMBER u32 spans() const { return (w_.cols + kSpanCols - 1) / kSpanCols; }
  // Units of eight numbers of a row of x.
  DEVICE_MEMBER u32 row_units() const { return spans() * (kSpanCols / 8); }
  DEVICE_MEMBER u32 tile_sums() const {
    return kPartSlices * parts_ * ring_tile_rows(parts_);
  }
  DEVICE_MEMBER u32 begin_of(u32 slice) const {
    return first_stage<F>(slice, w_.cols, parts_);
  }

  DEVICE_MEMBER float sum_of(const float* sums, u32 stride) const {
    float sum = 0;
    for (u32 part = 0; part < parts_; ++part) {
      float own = 0;
#pragma unroll
      for (u32 s = 0; s < kPartSlices; ++s) own += sums[(kPartSlices * part + s) * stride];
      sum = parts_ == 1 ? own : sum + own;
    }
    return sum;
  }

  // Finds the rows that this lane copies of a tile.
  DEVICE_MEMBER void place_rows() {
    const u32 first = tile_ * ring_tile_rows(parts_) + slices_.row;
    copies_.begin([&](u32 i) { return row_of_(first + i) * u32(w_.row_stride / 16); });
  }

  // Requests the next stage, if there is one. Each stage has a group of copies, empty ones too.
  DEVICE_MEMBER void copy_stage() {
    if (tile_ < end_tile_) {
      copies_.copy(ring_ + to_ * kStageBytes<F>, w_.data, w_.cols, stage_);
      if (++to_ == kStages) to_ = 0;
      if (++stage_ == end_stage_) {
        stage_ = first_stage_;
        if (++tile_ < end_tile_) place_rows();
      }
    }
    commit_copies();
  }

  DEVICE_MEMBER void add_stage(float (&sums)[1][1][4], u32 stage) {
    wait_copies<int(kStages) - 2>();
    // All lanes' copies are visible, and none reads the stage that is filled next any more.
    __syncwarp();
    copy_stage();
    const u8* from = ring_ + from_ * kStageBytes<F>;
    if (++from_ == kStages) from_ = 0;
    const uint4* x = x_ + stage * (Spans::kStageCols / 8);
    constexpr u32 kStageChunks = Spans::kStageCols / F::kCols;
    // Chunks beyond the last repeat the last; x is zero there.
    const u32 last = min(kStageChunks, chunks_of<F>(w_.cols) - stage * kStageChunks) - 1;
#pragma unroll
    for (u32 step = 0; step < kStageChunks / 4; ++step) {
      const u32 chunk = min(4 * step + lane_id() % 4, last), row = lane_id() / 4;
      const typename F::Chunk chunks[1][2] = {{Spans::chunk(from, row, chunk, stage),
                                               Spans::chunk(from, row + 8, chunk, stage)}};
      multiply_step<F, T, 0>(sums, chunks, x, step);
    }
  }

  const WeightRows& w_;
  RowOf row_of_;
  const u32 parts_, first_tile_, end_tile_;
  const WarpSlices slices_;
  u8* ring_;
  float* sums_;
  uint4* x_;
  float scale_ = 1.0f;
  // The next stage to copy, its place in the ring, and the place of the next stage to multiply.
  typename Spans::Copies copies_;
  u32 tile_, stage_, to_ = 0, from_ = 0;
  const u32 first_stage_, end_stage_;
};

// The product of a token of a set for each block along x of a grid, by the blocks along y, which
// share `tiles` tiles: calls store(first row of the tile, i, row of the token, sum_of), as
// RingProduct does.
template <class F, class T, class RowOf, class Store>
DEVICE void multiply_by_ring(void* memory, const ProductOperands& a, u32 parts, u32 tiles,
                             u32 outputs, RowOf row_of, Store store) {
  const u32 first = u64(blockIdx.y) * tiles / gridDim.y;
  const u32 end = u64(blockIdx.y + 1) * tiles / gridDim.y;
  RingProduct<F, T, RowOf> product(memory, a.weight, parts, first, end, row_of);
  product.request();
  wait_for_previous_kernel();
  const u32 token = blockIdx.x;
  u32 row = token;
  bool has_token = true;
  if (a.set.list != nullptr) {
    has_token = token < load_now(a.set.count);
    if (has_token) row = a.set.list[token];
  }
  // x has room for the rows of a whole grid, so the row is requested before its number arrives.
  const float* x = static_cast<const float*>(a.x.data) + u64(row) * a.weight.cols;
  RowStart start;
  if (has_token) start = start_row(x, a.x.norm, a.weight.cols);
  if (token >= *a.set.count) {
    wait_copies<0>();
    return;
  }
  product.round_x(x, a.x.norm, start);
  product.multiply(outputs, [&](u32 first_row, u32 i, auto sum_of) {
    store(first_row, i, row, sum_of);
  });
}

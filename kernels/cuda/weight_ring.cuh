#pragma once

// The product of up to eight tokens with a weight, bound by memory: decode_gemm.cu,
// gated_decode_gemm.cu and, for one token, grouped_decode_gemm.cu compute it by this for the
// formats of formats.cuh.
//
// Weights pass through shared memory. Each warp has a ring of stages of its own, which it fills by
// asynchronous copies and empties in order, so that warps wait for each other only where they add
// up a tile. The rings of a multiprocessor hold 144 KB, of one block or, for one token, of two.
// They are filled before the wait for the previous kernel: while that kernel ends, and this one
// reads its rows of x, memory delivers weights. Registers would hold half as much.
//
// All rows of x are in shared memory, 16 bits a number: that of one token is rounded by each block,
// several have been rounded by convert_rows.
//
// The grid has at most the blocks that the device runs at once, each with a range of tiles. A block
// takes its tiles one after another; copies of the next begin while one is multiplied.
//
// The columns of a row are cut into slices, four for each of `parts` (ColumnSplit). Each warp sums
// up its slices in the order of columns; the slices of a part are added up, then the parts. That is
// the order of decode_gemm.cuh for several tokens.

#include "chunk_products.cuh"
#include "rounded_rows.cuh"
#include "row_set.cuh"
#include "weight_spans.cuh"

// Rows of a warp's tile; two such tiles share a slice if there are just four slices.
constexpr u32 kRingRows = 16, kRingWarps = kRowThreads / kWarp;
constexpr u32 kPartSlices = 4;

// Bytes of a warp's ring. For one token, two blocks fit into a multiprocessor of SM90, and one into
// those of SM86 and SM89.
template <u32 tokens>
constexpr u32 kRingBytes = tokens == 1 ? 9216 : 18432;
template <class F>
constexpr u32 kStageBytes = kRingRows * WeightSpans<F>::kRowBytes;
template <class F, u32 tokens>
constexpr u32 kRingStages = kRingBytes<tokens> / kStageBytes<F>;

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

// A block's product with up to `tokens` tokens, 1 or 8. row_of(i): the row of the weight that is
// row i of all tiles together. Shared memory: the rings; the sums of the slices of a tile, twice,
// since warps begin the next tile while some threads add up one; the rows of x.
template <class F, class T, class RowOf, u32 tokens = 1>
class RingProduct {
  using Spans = WeightSpans<F>;
  static constexpr u32 kStages = kRingStages<F, tokens>;

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
        ring_(static_cast<u8*>(memory) + warp_id() * kRingBytes<tokens>),
        sums_(reinterpret_cast<float*>(static_cast<u8*>(memory) +
                                       kRingWarps * kRingBytes<tokens>)),
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
      x_[unit_place<F>(0, unit)] = rounded_unit(T{}, x, norm, unit, w_.cols, scale.factor);
    }
    scale_ = scale.product;
    __syncthreads();
  }

  // Copies `count` rounded rows of padded_cols numbers, the same.
  DEVICE_MEMBER void copy_x(const uint4* rows, u32 count, u32 padded_cols) {
    n_tokens_ = count;
    for (u32 i = threadIdx.x; i < count * row_units(); i += kRowThreads) {
      const u32 token = i / row_units(), unit = i % row_units();
      const bool valid = unit < padded_cols / 8;
      x_[token * row_units() + unit_place<F>(token, unit)] =
          valid ? rows[token * (padded_cols / 8) + unit] : make_uint4(0, 0, 0, 0);
    }
    __syncthreads();
  }

  // Multiplies the tiles: calls store(row, i, token, sum_of) for output i of the tile whose first
  // row is `row`, and each token; sum_of(r) is the product with row r of the tile, of a single
  // token scaled. `outputs`: those of a tile.
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
        float* to = sums + slice * tokens * tile_rows + slices_.row + lane_id() / 4;
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
          const u32 token = lane_id() % 4 * 2 + i % 2;
          if (token < tokens) to[token * tile_rows + i / 2 * 8] = own[0][0][i];
        }
      }
      __syncthreads();
      for (u32 i = threadIdx.x; i < outputs * n_tokens_; i += kRowThreads) {
        const u32 token = tokens == 1 ? 0 : i / outputs;
        const float* of_token = sums + token * tile_rows;
        store(tile * tile_rows, i - token * outputs, token,
              [&](u32 row) { return sum_of(of_token + row, tokens * tile_rows) * scale_; });
      }
    }
    wait_copies<0>();
  }

 private:
  DEVICE_MEMBER u32 spans() const { return (w_.cols + kSpanCols - 1) / kSpanCols; }
  // Units of eight numbers of a row of x.
  DEVICE_MEMBER u32 row_units() const { return spans() * (kSpanCols / 8); }
  DEVICE_MEMBER u32 tile_sums() const {
    return kPartSlices * parts_ * ring_tile_rows(parts_) * tokens;
  }
  // The first stage of a slice.
  DEVICE_MEMBER u32 begin_of(u32 slice) const {
    const u32 span = slice * spans() / (kPartSlices * parts_);
    return min(span * Spans::kStagesOfSpan,
               (w_.cols + Spans::kStageCols - 1) / Spans::kStageCols);
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
    copies_.begin([&](u32 i) { return w_.data + u64(row_of_(first + i)) * w_.row_stride; });
  }

  // Requests the next stage, if there is one. Each stage has a group of copies, empty ones too.
  DEVICE_MEMBER void copy_stage() {
    if (tile_ < end_tile_) {
      copies_.copy(ring_ + to_ * kStageBytes<F>, w_.cols, stage_);
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
    // Lanes without a token compute sums that nothing reads.
    const u32 token = tokens == 1 || lane_id() / 4 >= n_tokens_ ? 0 : lane_id() / 4;
    const uint4* x = x_ + token * row_units() + stage * (Spans::kStageCols / 8);
    constexpr u32 kStageChunks = Spans::kStageCols / F::kCols;
    // Chunks beyond the last repeat the last; x is zero there.
    const u32 last = min(kStageChunks, chunks_of<F>(w_.cols) - stage * kStageChunks) - 1;
#pragma unroll
    for (u32 step = 0; step < kStageChunks / 4; ++step) {
      const u32 chunk = min(4 * step + lane_id() % 4, last), row = lane_id() / 4;
      const typename F::Chunk chunks[1][2] = {{Spans::chunk(from, row, chunk, stage),
                                               Spans::chunk(from, row + 8, chunk, stage)}};
      multiply_step<F, T, tokens == 1 ? 0 : 1>(sums, chunks, x, step);
    }
  }

  const WeightRows& w_;
  RowOf row_of_;
  const u32 parts_, first_tile_, end_tile_;
  const WarpSlices slices_;
  u8* ring_;
  float* sums_;
  uint4* x_;
  u32 n_tokens_ = 1;
  float scale_ = 1.0f;
  // The next stage to copy, its place in the ring, and the place of the next stage to multiply.
  typename Spans::Copies copies_;
  u32 tile_, stage_, to_ = 0, from_ = 0;
  const u32 first_stage_, end_stage_;
};

// The products of up to `tokens` tokens of a set for each block along x of a grid, by the blocks
// along y, which share `tiles` tiles: calls store(first row of the tile, i, row of the token,
// sum_of), as RingProduct does.
template <class F, class T, u32 tokens, class RowOf, class Store>
DEVICE void multiply_by_ring(void* memory, const ProductOperands& a, u32 parts, u32 tiles,
                             u32 outputs, RowOf row_of, Store store) {
  const u32 first = u64(blockIdx.y) * tiles / gridDim.y;
  const u32 end = u64(blockIdx.y + 1) * tiles / gridDim.y;
  RingProduct<F, T, RowOf, tokens> product(memory, a.weight, parts, first, end, row_of);
  product.request();
  wait_for_previous_kernel();
  const u32 first_token = blockIdx.x * tokens;
  if constexpr (tokens > 1) {
    const u32 count = *a.set.count;
    if (first_token >= count) {
      wait_copies<0>();
      return;
    }
    const u64 begin = u64(first_token) * a.x.padded_cols;
    const T* x = static_cast<const T*>(a.x.data) + begin;
    product.copy_x(reinterpret_cast<const uint4*>(x), min(count - first_token, tokens),
                   a.x.padded_cols);
    product.multiply(outputs, [&](u32 first_row, u32 i, u32 token, auto sum_of) {
      const float scale = a.x.scale[first_token + token];
      store(first_row, i, row_of_set(a.set, first_token + token),
            [&](u32 row) { return sum_of(row) * scale; });
    });
  } else {
    u32 row = first_token;
    bool has_token = true;
    if (a.set.list != nullptr) {
      has_token = first_token < load_now(a.set.count);
      if (has_token) row = a.set.list[first_token];
    }
    // x has room for the rows of a whole grid, so the row is requested before its number arrives.
    const float* x = static_cast<const float*>(a.x.data) + u64(row) * a.weight.cols;
    RowStart start;
    if (has_token) start = start_row(x, a.x.norm, a.weight.cols);
    if (first_token >= *a.set.count) {
      wait_copies<0>();
      return;
    }
    product.round_x(x, a.x.norm, start);
    product.multiply(outputs, [&](u32 first_row, u32 i, u32, auto sum_of) {
      store(first_row, i, row, sum_of);
    });
  }
}

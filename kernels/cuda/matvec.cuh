#pragma once

// The product of a few tokens with a weight in F32: the body of matvec.cu and grouped_matvec.cu.
// Other weights have tensor-core products (decode_gemm.cuh), which would round these to 16 bits.
//
// A decoded token reads every weight once, so memory bandwidth is the bound. Weights are read in
// 16-byte loads that bypass the L1 cache, several in flight per lane. A warp computes two rows at
// once, which share the loads of x; x is in the L1 cache after the first warp of the multiprocessor
// has read it. `split` warps of a block divide the columns of the same rows among themselves and
// add up their sums in shared memory, so that a weight of few rows still fills the device. Sums are
// added in the same order for any number of tokens: over lanes, then over warps.

#include "activation.cuh"
#include "warp.cuh"

constexpr u32 kMatvecWarps = 8, kWarpRows = 2;

// Chunks of four weights in flight per row and lane.
constexpr u32 chunks_ahead(u32 tokens) { return tokens <= 2 ? 4 : 2; }
constexpr u32 matvec_blocks_per_sm(u32 tokens) { return tokens <= 2 ? 2 : 1; }

// The starts of the tokens' rows of x.
template <u32 tokens>
struct TokenRows {
  const float* row[tokens];
};

// Returns x[k .. k + 3]. Unless rows are `whole` chunks, numbers from `cols` on are zeros.
template <bool whole>
DEVICE float4 load_four(const float* x, u32 k, u32 cols) {
  if (whole) return *reinterpret_cast<const float4*>(x + k);
  return make_float4(k < cols ? x[k] : 0.0f, k + 1 < cols ? x[k + 1] : 0.0f,
                     k + 2 < cols ? x[k + 2] : 0.0f, k + 3 < cols ? x[k + 3] : 0.0f);
}

template <bool whole, u32 tokens>
DEVICE void accumulate(float (&sums)[kWarpRows][tokens], const uint4 (&w)[kWarpRows],
                       const TokenRows<tokens>& x, u32 cols, u32 chunk) {
#pragma unroll
  for (u32 t = 0; t < tokens; ++t) {
    const float4 v = load_four<whole>(x.row[t], chunk * 4, cols);
#pragma unroll
    for (u32 i = 0; i < kWarpRows; ++i) {
      sums[i][t] += __uint_as_float(w[i].x) * v.x;
      sums[i][t] += __uint_as_float(w[i].y) * v.y;
      sums[i][t] += __uint_as_float(w[i].z) * v.z;
      sums[i][t] += __uint_as_float(w[i].w) * v.w;
    }
  }
}

// The rows of this warp and its share of their columns.
struct WarpShare {
  u32 first_row;
  u32 part;   // 0 .. split - 1
  u32 split;
};
DEVICE WarpShare share_of_warp(u32 split) {
  const u32 group = warp_id() / split;
  const u32 groups = kMatvecWarps / split;
  return {(blockIdx.x * groups + group) * kWarpRows, warp_id() % split, split};
}

// sums[i][t] += this lane's share of the products of the warp's rows.
template <bool whole, u32 tokens>
DEVICE void add_chunks(float (&sums)[kWarpRows][tokens], const WeightRows& w,
                       const TokenRows<tokens>& x, const WarpShare& share) {
  const u8* row[kWarpRows];
#pragma unroll
  for (u32 i = 0; i < kWarpRows; ++i) {
    row[i] = w.data + u64(min(share.first_row + i, w.rows - 1)) * w.row_stride;
  }
  constexpr u32 ahead = chunks_ahead(tokens);
  const u32 n_chunks = (w.cols + 3) / 4, step = kWarp * share.split;
  u32 chunk = share.part * kWarp + lane_id();
  for (; chunk + (ahead - 1) * step < n_chunks; chunk += ahead * step) {
    uint4 c[ahead][kWarpRows];
#pragma unroll
    for (u32 a = 0; a < ahead; ++a) {
#pragma unroll
      for (u32 i = 0; i < kWarpRows; ++i) {
        c[a][i] = load_streaming(row[i] + u64(chunk + a * step) * 16);
      }
    }
#pragma unroll
    for (u32 a = 0; a < ahead; ++a) accumulate<whole>(sums, c[a], x, w.cols, chunk + a * step);
  }
  for (; chunk < n_chunks; chunk += step) {
    uint4 c[kWarpRows];
#pragma unroll
    for (u32 i = 0; i < kWarpRows; ++i) c[i] = load_streaming(row[i] + u64(chunk) * 16);
    accumulate<whole>(sums, c, x, w.cols, chunk);
  }
}

// Calls store(row, token, product) once for every row and token of the block, in warps with part 0.
// All threads of the block must call this.
template <u32 tokens, class Store>
DEVICE void multiply_rows(const WeightRows& w, const TokenRows<tokens>& x, u32 split, Store store) {
  SHARED(float, partial, [kMatvecWarps][kWarpRows * tokens]);
  const WarpShare share = share_of_warp(split);

  float sums[kWarpRows][tokens] = {};
  if (w.cols % 4 == 0) {
    add_chunks<true>(sums, w, x, share);
  } else {
    add_chunks<false>(sums, w, x, share);
  }

#pragma unroll
  for (u32 i = 0; i < kWarpRows; ++i) {
#pragma unroll
    for (u32 t = 0; t < tokens; ++t) {
      const float sum = warp_sum(sums[i][t]);
      if (lane_id() == 0) partial[warp_id()][i * tokens + t] = sum;
    }
  }
  __syncthreads();
  if (share.part != 0 || lane_id() >= kWarpRows * tokens) return;
  const u32 i = lane_id() / tokens, t = lane_id() % tokens;
  if (share.first_row + i >= w.rows) return;
  float sum = 0;
  for (u32 part = 0; part < split; ++part) sum += partial[warp_id() + part][lane_id()];
  store(share.first_row + i, t, sum);
}

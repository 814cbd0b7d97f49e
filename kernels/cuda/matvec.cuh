#pragma once

// The product of a few tokens with a weight: the body of matvec.cu, gated_matvec.cu and
// grouped_matvec.cu.
//
// A decoded token reads every weight once, so memory bandwidth is the bound. Weights are read in
// 16-byte loads that bypass the L1 cache, several in flight per lane (InFlight), and are
// dequantized in registers. A warp computes two rows at once, which share the loads of x; x is in
// the L1 cache after the first warp of the multiprocessor has read it. `split` warps of a block
// divide the columns of the same rows among themselves and add up their sums in shared memory, so
// that a weight of few rows still fills the device. Sums are added in the same order for any number
// of tokens: over lanes, then over warps.

#include "activation.cuh"
#include "blocks.cuh"
#include "warp.cuh"

constexpr u32 kMatvecWarps = 8;

// Loads in flight per lane: `ahead` chunks for each of `rows` rows. With few tokens, registers
// suffice for two chunks per row. For file blocks, whose decoded weights fill the registers, they
// suffice for one chunk of one row.
template <class F>
struct InFlight {
  static constexpr u32 rows = 2;
  static constexpr u32 ahead(u32 tokens) { return tokens <= 2 ? 2 : 1; }
  static constexpr u32 blocks_per_sm(u32 tokens) { return tokens <= 2 ? 2 : 1; }
};
template <u32 type>
struct InFlight<Blocks<type>> {
  static constexpr u32 rows = 1;
  static constexpr u32 ahead(u32) { return 1; }
  static constexpr u32 blocks_per_sm(u32) { return 1; }
};

// True if eight neighbouring lanes, which 16-byte loads serve at once, always read x from different
// banks of the cache.
template <class F>
constexpr bool reads_all_banks() {
  for (u32 r = 0; r < F::kRuns; ++r) {
    for (u32 j = 0; j < F::kRun / 4; ++j) {
      u32 banks = 0;
      for (u32 chunk = 0; chunk < 8; ++chunk) banks |= 1u << F::column(chunk, r, j) / 4 % 8;
      if (banks != 0xff) return false;
    }
  }
  return true;
}

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

template <class F, bool whole, u32 rows, u32 tokens>
DEVICE void accumulate(float (&sums)[rows][tokens], const typename F::Chunk (&c)[rows],
                       const TokenRows<tokens>& x, u32 cols, u32 chunk) {
#pragma unroll
  for (u32 r = 0; r < F::kRuns; ++r) {
    float dots[rows][tokens] = {};
    float x_sums[tokens] = {};
#pragma unroll
    for (u32 j = 0; j < F::kRun / 4; ++j) {
      float4 w[rows];
#pragma unroll
      for (u32 i = 0; i < rows; ++i) w[i] = F::four(c[i], r, j);
#pragma unroll
      for (u32 t = 0; t < tokens; ++t) {
        const float4 v = load_four<whole>(x.row[t], F::column(chunk, r, j), cols);
        if (F::kHasMin) x_sums[t] += v.x + v.y + v.z + v.w;
#pragma unroll
        for (u32 i = 0; i < rows; ++i) {
          dots[i][t] += w[i].x * v.x;
          dots[i][t] += w[i].y * v.y;
          dots[i][t] += w[i].z * v.z;
          dots[i][t] += w[i].w * v.w;
        }
      }
    }
#pragma unroll
    for (u32 i = 0; i < rows; ++i) {
#pragma unroll
      for (u32 t = 0; t < tokens; ++t) {
        const float scaled = F::kScaled ? F::scale(c[i], r) * dots[i][t] : dots[i][t];
        sums[i][t] += F::kHasMin ? scaled - F::min(c[i], r) * x_sums[t] : scaled;
      }
    }
  }
}

// The rows of a weight that a block computes.
struct WeightRows {
  const u8* data;
  u64 stride;
  u32 count;
  u32 cols;
  // Not 0: rows are counted in pairs of row n and row n + half, for gated_matvec.cu.
  u32 half = 0;

  DEVICE_MEMBER const u8* row(u32 i) const {
    return data + u64(half > 0 ? i % 2 * half + i / 2 : i) * stride;
  }
};

// The rows of this warp and its share of their columns.
struct WarpShare {
  u32 first_row;
  u32 part;   // 0 .. split - 1
  u32 split;
};
template <class F>
DEVICE WarpShare share_of_warp(u32 split) {
  const u32 group = warp_id() / split;
  const u32 groups = kMatvecWarps / split;
  return {(blockIdx.x * groups + group) * InFlight<F>::rows, warp_id() % split, split};
}

// sums[i][t] += this lane's share of the products of the warp's rows.
template <class F, bool whole, u32 rows, u32 tokens>
DEVICE void add_chunks(float (&sums)[rows][tokens], const WeightRows& w,
                       const TokenRows<tokens>& x, const WarpShare& share, const u64* codebooks) {
  const u8* row[rows];
#pragma unroll
  for (u32 i = 0; i < rows; ++i) {
    row[i] = w.row(min(share.first_row + i, w.count - 1));
  }
  constexpr u32 ahead = InFlight<F>::ahead(tokens);
  const u32 n_chunks = chunks_of<F>(w.cols), step = kWarp * share.split;
  u32 chunk = share.part * kWarp + lane_id();
  for (; chunk + (ahead - 1) * step < n_chunks; chunk += ahead * step) {
    typename F::Chunk c[ahead][rows];
#pragma unroll
    for (u32 a = 0; a < ahead; ++a) {
#pragma unroll
      for (u32 i = 0; i < rows; ++i) {
        c[a][i] = F::load(row[i], w.cols, chunk + a * step, codebooks);
      }
    }
#pragma unroll
    for (u32 a = 0; a < ahead; ++a) accumulate<F, whole>(sums, c[a], x, w.cols, chunk + a * step);
  }
  for (; ahead > 1 && chunk < n_chunks; chunk += step) {
    typename F::Chunk c[rows];
#pragma unroll
    for (u32 i = 0; i < rows; ++i) c[i] = F::load(row[i], w.cols, chunk, codebooks);
    accumulate<F, whole>(sums, c, x, w.cols, chunk);
  }
}

// Calls store(row, token, product) once for every row and token of the block, in warps with part 0.
// All threads of the block must call this.
template <class F, u32 tokens, class Store>
DEVICE void multiply_rows(const WeightRows& w, const TokenRows<tokens>& x, u32 split,
                          const u64* codebooks, Store store) {
  static_assert(!F::kScaled || reads_all_banks<F>());
  constexpr u32 rows = InFlight<F>::rows;
  SHARED(float, partial, [kMatvecWarps][rows * tokens]);
  const WarpShare share = share_of_warp<F>(split);

  float sums[rows][tokens] = {};
  constexpr u32 kElements = F::kRun * F::kRuns;
  if constexpr (F::kUnit % kElements == 0) {
    add_chunks<F, true>(sums, w, x, share, codebooks);
  } else if (w.cols % kElements == 0) {
    add_chunks<F, true>(sums, w, x, share, codebooks);
  } else {
    add_chunks<F, false>(sums, w, x, share, codebooks);
  }

#pragma unroll
  for (u32 i = 0; i < rows; ++i) {
#pragma unroll
    for (u32 t = 0; t < tokens; ++t) {
      const float sum = warp_sum(sums[i][t]);
      if (lane_id() == 0) partial[warp_id()][i * tokens + t] = sum;
    }
  }
  __syncthreads();
  if (share.part != 0 || lane_id() >= rows * tokens) return;
  const u32 i = lane_id() / tokens, t = lane_id() % tokens;
  if (share.first_row + i >= w.count) return;
  float sum = 0;
  for (u32 part = 0; part < split; ++part) sum += partial[warp_id() + part][lane_id()];
  store(share.first_row + i, t, sum);
}

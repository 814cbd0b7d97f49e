#pragma once

// The product of a few tokens with a weight: the body of matvec.metal, rms_norm_matvec.metal and
// grouped_matvec.metal.
//
// A decoded token reads every weight once, so memory bandwidth is the bound. Each SIMD group reads
// several rows at a time into registers, neighbouring lanes neighbouring chunks, and dequantizes
// there. The rows share the loads of x, which hit the cache: a copy in threadgroup memory would add
// a barrier and be no faster. Most threadgroups therefore need no barrier. `split` SIMD groups
// divide the columns of the same rows among themselves and add up through threadgroup memory, so
// that a weight of few rows still fills the device. Sums are added in the same order for any number
// of tokens: over chunks, then lanes, then SIMD groups.

#include "blocks.h"
#include "row_set.h"
#include "simd.h"

// The rows that a SIMD group computes together. More rows divide the reads of x further; the limit
// is the registers for sums and chunks.
template <class F>
struct RowsTogether {
  CONSTANT uint value = kMatvecRows;
};
template <uint type>
struct RowsTogether<Blocks<type>> {
  CONSTANT uint value = kMatvecBlocksRows;
};

// Input of a product. PlainTokens reads x unchanged.
template <uint tokens>
struct PlainTokens {
  CONSTANT uint kSquares = 0;
  device const float* row[tokens];

  template <bool whole>
  float4 four(uint t, uint k, uint cols, thread float*) const {
    return load_four<whole>(row[t], k, cols);
  }
};

// Reads x * (weight + offset). Multiplying by a factor at the end gives the products of the
// normalized x; the sums of squares for this factor are added up along the way.
template <uint tokens>
struct NormedTokens {
  CONSTANT uint kSquares = tokens;
  device const float* row[tokens];
  device const float* weight;
  float offset;

  template <bool whole>
  float4 four(uint t, uint k, uint cols, thread float* squares) const {
    const float4 v = load_four<whole>(row[t], k, cols);
    squares[t] += dot(v, v);
    return v * (load_four<whole>(weight, k, cols) + offset);
  }
};

template <uint tokens>
inline NormedTokens<tokens> normed_tokens(device const float* x, device const float* weight,
                                          constant RmsNormMatvecArgs& args, RowSet set,
                                          uint first) {
  NormedTokens<tokens> all;
  for (uint t = 0; t < tokens; ++t) {
    all.row[t] = x + ulong(row_of(set, first + t)) * args.product.cols;
  }
  all.weight = weight;
  all.offset = args.offset;
  return all;
}

// The rows of a SIMD group and its share of their columns.
struct RowShare {
  uint first_row;
  uint part;  // 0 .. split - 1
  uint split;
};
template <class F>
inline RowShare row_share(uint threadgroup_index, uint split, Place p) {
  const uint groups = kMatvecSimdgroups / split;
  const uint group = threadgroup_index * groups + p.simdgroup / split;
  return {group * RowsTogether<F>::value, p.simdgroup % split, split};
}

// A lane's sums; after `reduce`, the sums of the SIMD group.
template <uint rows, uint tokens>
struct RowSums {
  float products[rows][tokens];
  float squares[tokens];  // for NormedTokens
};

template <class F, bool whole, uint rows, uint tokens, class Tokens>
inline void add_chunk(thread RowSums<rows, tokens>& sums,
                      thread const typename F::Chunk (&c)[rows], thread const Tokens& x, uint cols,
                      uint chunk) {
  UNROLL
  for (uint r = 0; r < F::kRuns; ++r) {
    const uint start = F::run_start(chunk, r);
    float dots[rows][tokens] = {};
    float x_sums[tokens] = {};
    UNROLL
    for (uint j = 0; j < F::kRun / 4; ++j) {
      float4 w[rows];
      UNROLL
      for (uint i = 0; i < rows; ++i) w[i] = F::four(c[i], r, j);
      UNROLL
      for (uint t = 0; t < tokens; ++t) {
        const float4 v = x.template four<whole>(t, start + 4 * j, cols, sums.squares);
        if (F::kHasMin) x_sums[t] += v.x + v.y + v.z + v.w;
        UNROLL
        for (uint i = 0; i < rows; ++i) dots[i][t] += dot(w[i], v);
      }
    }
    UNROLL
    for (uint i = 0; i < rows; ++i) {
      UNROLL
      for (uint t = 0; t < tokens; ++t) {
        const float scaled = F::kScaled ? F::scale(c[i], r) * dots[i][t] : dots[i][t];
        sums.products[i][t] += F::kHasMin ? scaled - F::min(c[i], r) * x_sums[t] : scaled;
      }
    }
  }
}

template <class F, bool whole, uint rows, uint tokens, class Tokens>
inline void add_chunks(thread RowSums<rows, tokens>& sums, WeightRows w, thread const Tokens& x,
                       RowShare share, uint lane, device const ulong* codebooks) {
  // Rows beyond the last repeat the last and are not stored.
  device const u8* row[rows];
  UNROLL
  for (uint i = 0; i < rows; ++i) {
    row[i] = w.row(min(share.first_row + i, w.count - 1));
  }
  const uint n_chunks = chunks_of<F>(w.cols), step = kLanes * share.split;
  for (uint chunk = share.part * kLanes + lane; chunk < n_chunks; chunk += step) {
    typename F::Chunk c[rows];
    UNROLL
    for (uint i = 0; i < rows; ++i) {
      c[i] = F::template load<whole>(row[i], w.cols, chunk, codebooks);
    }
    add_chunk<F, whole, rows, tokens>(sums, c, x, w.cols, chunk);
  }
}

// Threadgroup memory of a product: the sums of each SIMD group.
template <class F, uint tokens, class Tokens>
struct PartialSums {
  CONSTANT uint kProducts = RowsTogether<F>::value * tokens;
  CONSTANT uint kEach = kProducts + Tokens::kSquares;
  CONSTANT uint kCount = kMatvecSimdgroups * kEach;
};

// A lane's result for a row and a token.
struct RowProduct {
  float product;
  float second;   // for rows in pairs, the product of the second row
  float squares;  // the sum of squares of NormedTokens
};

// Calls store(row, token, product) once for every row and token of the threadgroup. All threads
// must call this.
template <class F, uint tokens, class Tokens, class Store>
inline void multiply_rows(WeightRows w, thread const Tokens& x, uint threadgroup_index, uint split,
                          device const ulong* codebooks, threadgroup float* partial, Place p,
                          thread const Store& store) {
  const uint rows = RowsTogether<F>::value;
  const uint each = PartialSums<F, tokens, Tokens>::kEach;
  const uint n_products = PartialSums<F, tokens, Tokens>::kProducts;
  const RowShare share = row_share<F>(threadgroup_index, split, p);
  RowSums<rows, tokens> sums = {};
  if (F::kUnit % (F::kRun * F::kRuns) == 0 || w.cols % (F::kRun * F::kRuns) == 0) {
    add_chunks<F, true, rows, tokens>(sums, w, x, share, p.lane, codebooks);
  } else {
    add_chunks<F, false, rows, tokens>(sums, w, x, share, p.lane, codebooks);
  }

  // Lane n keeps the n-th product, so that lanes store in parallel.
  float product = 0, squares = 0;
  UNROLL
  for (uint i = 0; i < rows; ++i) {
    UNROLL
    for (uint t = 0; t < tokens; ++t) {
      const float sum = simd_sum(sums.products[i][t]);
      if (p.lane == i * tokens + t) product = sum;
    }
  }
  UNROLL
  for (uint t = 0; t < Tokens::kSquares; ++t) {
    const float sum = simd_sum(sums.squares[t]);
    if (p.lane % tokens == t) squares = sum;
  }
  if (split > 1) {
    threadgroup float* own = partial + p.simdgroup * each;
    if (p.lane < n_products) own[p.lane] = product;
    if (p.lane < Tokens::kSquares) own[n_products + p.lane] = squares;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (share.part != 0) return;
    product = 0;
    squares = 0;
    for (uint part = 0; part < split && p.lane < n_products; ++part) {
      product += own[part * each + p.lane];
      if (Tokens::kSquares > 0) squares += own[part * each + n_products + p.lane % tokens];
    }
  }
  const RowProduct found = {product, simd_shuffle_xor(product, ushort(tokens)), squares};
  const uint row = share.first_row + p.lane / tokens;
  if (p.lane < n_products && row < w.count) store(row, p.lane % tokens, found);
}

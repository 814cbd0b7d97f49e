#pragma once

// The two products of attention over a run of positions, with up to kTileTokens query rows at once.
//
// Keys are stored with positions adjacent, so that the scores of kLanes positions are one vector
// and no sum over lanes is needed; values are stored with dimensions adjacent, for the same reason.
// A score is summed over the dimensions in order and an output over the positions in order, each in
// its own lane, so neither depends on how rows and positions are tiled.

#include "attention_cache.h"

namespace forge::cpu::FORGE_TARGET {

constexpr int kWide = 4;  // vectors of positions or dimensions that a tile covers at once

// scores[row][first .. first + vectors kLanes) = q . k
template <class Cache, int n_rows, int vectors>
FORGE_INLINE void score_tile(const float* q, uint32_t dim, const Run& run, int first,
                             float* scores) {
  Vec acc[n_rows][vectors];
  for (int r = 0; r < n_rows; ++r) {
    for (int v = 0; v < vectors; ++v) acc[r][v] = zero();
  }
  for (uint32_t block = 0; block < dim; block += kKvBlock) {
    const uint32_t end = block + kKvBlock < dim ? block + kKvBlock : dim;
    const auto scales = KeyScales<Cache, vectors>::of(run, block, first);
    for (uint32_t d = block; d < end; ++d) {
      fetch_ahead<Cache, vectors * kLanes>(
          run, Cache::key_at(run.stride, d, static_cast<uint64_t>(first)));
      Vec key[vectors];
      for (int v = 0; v < vectors; ++v) {
        key[v] = load_key<Cache, vectors>(run, scales, d, first + v * kLanes, v);
      }
      FORGE_UNROLL(8)
      for (int r = 0; r < n_rows; ++r) {
        const Vec query = set(q[r * dim + d]);
        for (int v = 0; v < vectors; ++v) acc[r][v] = fma(query, key[v], acc[r][v]);
      }
    }
  }
  for (int r = 0; r < n_rows; ++r) {
    for (int v = 0; v < vectors; ++v) {
      store(scores + r * kScoreStride + first + v * kLanes, acc[r][v]);
    }
  }
}

// The scores of positions [begin, end) of a run; other scores in the same vectors are undefined.
template <class Cache, int n_rows>
void score_run(const float* q, uint32_t dim, const Run& run, int begin, int end, float* scores) {
  for (int i = begin / kLanes * kLanes; i < end;) {
    if (end - i > (kWide - 1) * kLanes) {
      score_tile<Cache, n_rows, kWide>(q, dim, run, i, scores);
      i += kWide * kLanes;
    } else {
      score_tile<Cache, n_rows, 1>(q, dim, run, i, scores);
      i += kLanes;
    }
  }
}

// out[row][dim .. dim + vectors kLanes) += weight times value over positions [begin, end) of a run.
template <class Cache, int n_rows, int vectors>
FORGE_INLINE void value_tile(const Run& run, int begin, int end, const float* weights, uint32_t dim,
                             float* out, uint64_t out_stride) {
  Vec acc[n_rows][vectors];
  for (int r = 0; r < n_rows; ++r) {
    for (int v = 0; v < vectors; ++v) acc[r][v] = load(out + r * out_stride + dim + v * kLanes);
  }
  for (int i = begin; i < end; ++i) {
    fetch_ahead<Cache, vectors * kLanes>(
        run, Cache::value_at(run.stride, static_cast<uint64_t>(i), dim));
    Vec value[vectors];
    for (int v = 0; v < vectors; ++v) {
      value[v] = load_value<Cache>(run, static_cast<uint32_t>(i), dim + v * kLanes);
    }
    FORGE_UNROLL(8)
    for (int r = 0; r < n_rows; ++r) {
      const Vec weight = set(weights[r * kScoreStride + i]);
      for (int v = 0; v < vectors; ++v) acc[r][v] = fma(weight, value[v], acc[r][v]);
    }
  }
  for (int r = 0; r < n_rows; ++r) {
    for (int v = 0; v < vectors; ++v) store(out + r * out_stride + dim + v * kLanes, acc[r][v]);
  }
}

// Every dimension; `out_dim` is padded_dim(v_head_dim).
template <class Cache, int n_rows>
void value_run(const Run& run, int begin, int end, const float* weights, uint32_t out_dim,
               float* out) {
  uint32_t dim = 0;
  for (; dim + kWide * kLanes <= out_dim; dim += kWide * kLanes) {
    value_tile<Cache, n_rows, kWide>(run, begin, end, weights, dim, out, out_dim);
  }
  for (; dim < out_dim; dim += kLanes) {
    value_tile<Cache, n_rows, 1>(run, begin, end, weights, dim, out, out_dim);
  }
}

// Calls tile.run<n>() for n rows, 1 to kTileTokens.
template <class Tile>
FORGE_INLINE void for_row_count(uint32_t n, const Tile& tile) {
  switch (n) {
#define FORGE_ROWS(count)                                                        \
  case count:                                                                    \
    if constexpr (count <= kTileTokens) tile.template run<count>();              \
    break;
    FORGE_ROWS(1)
    FORGE_ROWS(2)
    FORGE_ROWS(3)
    FORGE_ROWS(4)
    FORGE_ROWS(5)
    FORGE_ROWS(6)
#undef FORGE_ROWS
    default: break;
  }
}

}  // namespace forge::cpu::FORGE_TARGET

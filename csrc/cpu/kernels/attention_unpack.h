#pragma once

// Unpacks runs of keys and values to floats, for many query rows, which read each element often.

#include "attention_tiles.h"
#include "transpose.h"

namespace forge::cpu::FORGE_TARGET {

// Unpacks positions [first, first + vectors kLanes) of a run to [dimension][kAttentionRun].
template <class Cache, int vectors>
FORGE_INLINE void unpack_key_vectors(const Run& run, uint32_t dim, int first, float* to) {
  for (uint32_t block = 0; block < dim; block += kKvBlock) {
    const uint32_t end = block + kKvBlock < dim ? block + kKvBlock : dim;
    const auto scales = KeyScales<Cache, vectors>::of(run, block, first);
    for (uint32_t d = block; d < end; ++d) {
      fetch_ahead<Cache, vectors * kLanes>(
          run, Cache::key_at(run.stride, d, static_cast<uint64_t>(first)));
      for (int v = 0; v < vectors; ++v) {
        const int position = first + v * kLanes;
        store(to + d * kAttentionRun + position,
              load_key<Cache, vectors>(run, scales, d, position, v));
      }
    }
  }
}

// All of `n` positions.
template <class Cache>
Run unpack_keys(const Run& run, uint32_t dim, int n, float* to) {
  for (int i = 0; i < n;) {
    if (n - i > (kWide - 1) * kLanes) {
      unpack_key_vectors<Cache, kWide>(run, dim, i, to);
      i += kWide * kLanes;
    } else {
      unpack_key_vectors<Cache, 1>(run, dim, i, to);
      i += kLanes;
    }
  }
  const auto* data = reinterpret_cast<const uint8_t*>(to);
  return {data, kAttentionRun, nullptr, 0, data};
}

// The same for keys stored with dimensions adjacent, like values: transposes squares of 16
// positions by 16 dimensions.
template <class Cache>
Run unpack_key_rows(const Run& run, uint32_t dim, int n, float* to) {
  constexpr int kSide = kColumnRows;
  for (int first = 0; first < n; first += kSide) {
    for (uint32_t d = 0; d < dim; d += kSide) {
      float square[kSide][kSide];
      const uint8_t* rows[kSide];
      for (int i = 0; i < kSide; ++i) {
        // Past the last position the result is unused: repeat it.
        const int position = first + i < n ? first + i : n - 1;
        fetch_ahead<Cache, kSide>(
            run, Cache::value_at(run.stride, static_cast<uint64_t>(position), d));
        for (int j = 0; j < kSide; j += kLanes) {
          store(square[i] + j, load_value<Cache>(run, static_cast<uint32_t>(position), d + j));
        }
        rows[i] = reinterpret_cast<const uint8_t*>(square[i]);
      }
      for (uint32_t column = 0; column < kSide; column += Squares<float>::kColumns) {
        float* turned = to + (d + column) * kAttentionRun + first;
        transpose<float>(rows, column * sizeof(float), reinterpret_cast<uint8_t*>(turned),
                         kAttentionRun);
      }
    }
  }
  const auto* data = reinterpret_cast<const uint8_t*>(to);
  return {data, kAttentionRun, nullptr, 0, data};
}

// Unpacks `n` values of a run to [position][out_dim], out_dim being the padded head.
template <class Cache>
Run unpack_values(const Run& run, uint32_t out_dim, int n, float* to) {
  for (int i = 0; i < n; ++i) {
    for (uint32_t d = 0; d < out_dim; d += 16) {
      fetch_ahead<Cache, 16>(run, Cache::value_at(run.stride, static_cast<uint64_t>(i), d));
      for (uint32_t j = d; j < d + 16; j += kLanes) {
        store(to + i * out_dim + j, load_value<Cache>(run, static_cast<uint32_t>(i), j));
      }
    }
  }
  const auto* data = reinterpret_cast<const uint8_t*>(to);
  return {data, out_dim, nullptr, 0, data};
}

}  // namespace forge::cpu::FORGE_TARGET

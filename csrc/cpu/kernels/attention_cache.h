#pragma once

// Reads keys and values of each cache type, a vector of elements at a time. A vector may extend
// past the end of a head (the cache has slack); those elements are unused.

#include "../kernel_table.h"
#include "simd.h"

namespace forge::cpu::FORGE_TARGET {

struct CacheF32 {
  static constexpr uint64_t kBytes = 4;
  static constexpr bool kScaled = false;
  static constexpr bool kFetchAhead = true;
  FORGE_INLINE Vec load_at(const uint8_t* at) {
    Vec a;
    memcpy(&a, at, sizeof a);
    return a;
  }
};

struct CacheF16 {
  static constexpr uint64_t kBytes = 2;
  static constexpr bool kScaled = false;
  static constexpr bool kFetchAhead = true;
  FORGE_INLINE Vec load_at(const uint8_t* at) { return load_f16(at); }
};

struct CacheBF16 {
  static constexpr uint64_t kBytes = 2;
  static constexpr bool kScaled = false;
  static constexpr bool kFetchAhead = true;
  FORGE_INLINE Vec load_at(const uint8_t* at) { return load_bf16(at); }
};

struct CacheQ8 {
  static constexpr uint64_t kBytes = 1;
  static constexpr bool kScaled = true;
  static constexpr bool kFetchAhead = true;
  FORGE_INLINE Vec load_at(const uint8_t* at) {
    return widen_part<0>(reinterpret_cast<SignedBytes>(load_bytes(at)));
  }
};

// Floats unpacked from another cache type, in the first-level cache of the processor.
struct Unpacked : CacheF32 {
  static constexpr bool kFetchAhead = false;
};

// A run of positions in one page: keys [dimension][position], values [position][dimension], 
// `stride` elements apart. `next` is the run that is read after this one.
struct Run {
  const uint8_t* data;
  uint64_t stride;
  const uint8_t* scales;
  uint64_t scale_stride;
  const uint8_t* next;
};

// Prefetches from the next run the place of `vectors` vectors at element `at`: the runs of a
// sequence are scattered pieces of a few kB, too short for the prefetcher of the processor.
template <class Cache, int vectors>
FORGE_INLINE void fetch_ahead(const Run& run, uint64_t at) {
  if constexpr (Cache::kFetchAhead) {
    FORGE_UNROLL(8)
    for (int line = 0; line < vectors * kLanes * static_cast<int>(Cache::kBytes); line += 64) {
      __builtin_prefetch(run.next + at * Cache::kBytes + line);
    }
  }
}

// The scales of stored keys, for a block of dimensions of a run.
template <class Cache, int vectors>
struct KeyScales {
  Vec scale[Cache::kScaled ? vectors : 1];

  FORGE_INLINE KeyScales of(const Run& run, uint32_t dim, int first) {
    KeyScales out{};
    if constexpr (Cache::kScaled) {
      for (int v = 0; v < vectors; ++v) {
        const uint64_t at = dim / kKvBlock * run.scale_stride + first + v * kLanes;
        out.scale[v] = load_f16(run.scales + 2 * at);
      }
    }
    return out;
  }
};

// The key dimension `dim` of kLanes positions from `position` on.
template <class Cache, int vectors>
FORGE_INLINE Vec load_key(const Run& run, const KeyScales<Cache, vectors>& scales, uint32_t dim,
                          int position, int v) {
  const Vec stored = Cache::load_at(run.data + (dim * run.stride + position) * Cache::kBytes);
  if constexpr (Cache::kScaled) return stored * scales.scale[v];
  return stored;
}

// kLanes dimensions from `dim` on, all in one block, of the value of a position.
template <class Cache>
FORGE_INLINE Vec load_value(const Run& run, uint32_t position, uint32_t dim) {
  const Vec stored = Cache::load_at(run.data + (position * run.stride + dim) * Cache::kBytes);
  if constexpr (Cache::kScaled) {
    const uint64_t at = position * run.scale_stride + dim / kKvBlock;
    return stored * set(f16_at(run.scales + 2 * at));
  }
  return stored;
}

}  // namespace forge::cpu::FORGE_TARGET

#pragma once

// Reads keys and values of each cache type, a vector of elements at a time. A vector may extend
// past the end of a head (the cache has slack); those elements are unused.

#include "../kernel_table.h"
#include "simd.h"

namespace forge::cpu::FORGE_TARGET {

// Elements of whole bytes: keys [dimension][position], values [position][dimension].
template <uint64_t bytes>
struct CacheOfBytes {
  static constexpr bool kFetchAhead = true;
  static constexpr uint64_t kKeyBytes = bytes;  // from position to position
  FORGE_INLINE uint64_t key_at(uint64_t stride, uint32_t dim, uint64_t position) {
    return (dim * stride + position) * bytes;
  }
  FORGE_INLINE uint64_t value_at(uint64_t stride, uint64_t position, uint32_t dim) {
    return (position * stride + dim) * bytes;
  }
};

struct CacheF32 : CacheOfBytes<4> {
  static constexpr bool kScaled = false;
  FORGE_INLINE Vec load_key(const uint8_t* at, uint32_t) {
    Vec a;
    memcpy(&a, at, sizeof a);
    return a;
  }
  FORGE_INLINE Vec load_value(const uint8_t* at, uint32_t dim) { return load_key(at, dim); }
};

struct CacheF16 : CacheOfBytes<2> {
  static constexpr bool kScaled = false;
  FORGE_INLINE Vec load_key(const uint8_t* at, uint32_t) { return load_f16(at); }
  FORGE_INLINE Vec load_value(const uint8_t* at, uint32_t) { return load_f16(at); }
};

struct CacheBF16 : CacheOfBytes<2> {
  static constexpr bool kScaled = false;
  FORGE_INLINE Vec load_key(const uint8_t* at, uint32_t) { return load_bf16(at); }
  FORGE_INLINE Vec load_value(const uint8_t* at, uint32_t) { return load_bf16(at); }
};

struct CacheQ8 : CacheOfBytes<1> {
  static constexpr bool kScaled = true;
  FORGE_INLINE Vec load_key(const uint8_t* at, uint32_t) {
    return widen_part<0>(reinterpret_cast<SignedBytes>(load_bytes(at)));
  }
  FORGE_INLINE Vec load_value(const uint8_t* at, uint32_t dim) { return load_key(at, dim); }
};

// Levels + 8 in 4 bits. A byte has dimensions d and d + 1 of a key, or d and d + 16 of a value,
// whose blocks of 32 are whole.
struct CacheQ4 {
  static constexpr bool kFetchAhead = true;
  static constexpr bool kScaled = true;
  static constexpr uint64_t kKeyBytes = 1;
  FORGE_INLINE uint64_t key_at(uint64_t stride, uint32_t dim, uint64_t position) {
    return dim / 2 * stride + position;
  }
  FORGE_INLINE uint64_t value_at(uint64_t stride, uint64_t position, uint32_t dim) {
    return position * q4_row_bytes(static_cast<uint32_t>(stride)) + dim / 32 * 16 + dim % 16;
  }
  FORGE_INLINE Vec levels(const uint8_t* at, bool upper) {
    const Bytes both = load_bytes(at);
    return widen_part<0>(reinterpret_cast<SignedBytes>((upper ? both >> 4 : both & 15) - 8));
  }
  FORGE_INLINE Vec load_key(const uint8_t* at, uint32_t dim) { return levels(at, dim % 2 == 1); }
  FORGE_INLINE Vec load_value(const uint8_t* at, uint32_t dim) {
    return levels(at, dim % 32 >= 16);
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

// Prefetches from the next run the place of n elements at byte `at`: the runs of a sequence are
// scattered pieces of a few kB, too short for the prefetcher of the processor.
template <class Cache, int n>
FORGE_INLINE void fetch_ahead(const Run& run, uint64_t at) {
  if constexpr (Cache::kFetchAhead) {
    FORGE_UNROLL(8)
    for (int line = 0; line < n * static_cast<int>(Cache::kKeyBytes); line += 64) {
      __builtin_prefetch(run.next + at + line);
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
  const uint64_t at = Cache::key_at(run.stride, dim, static_cast<uint64_t>(position));
  const Vec stored = Cache::load_key(run.data + at, dim);
  if constexpr (Cache::kScaled) return stored * scales.scale[v];
  return stored;
}

// kLanes dimensions from `dim` on, all in one block, of the value of a position.
template <class Cache>
FORGE_INLINE Vec load_value(const Run& run, uint32_t position, uint32_t dim) {
  const Vec stored = Cache::load_value(run.data + Cache::value_at(run.stride, position, dim), dim);
  if constexpr (Cache::kScaled) {
    const uint64_t at = position * run.scale_stride + dim / kKvBlock;
    return stored * set(f16_at(run.scales + 2 * at));
  }
  return stored;
}

}  // namespace forge::cpu::FORGE_TARGET

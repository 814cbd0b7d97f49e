// AMX in plain C++, included before the sources of the CPU library (see amx_products_test.ts).
//
// In kernels: the intrinsics of tiles, with the arithmetic of Intel's reference manual, and checks
// of what a processor would fault on or compute otherwise: a wrong configuration, tiles of shapes
// that do not fit together, and access to tiles that were released. With FORGE_STAND_IN_BREAKS=1
// the first product ends the process, which shows that there is one.
//
// In other files: the CPUID of a processor with AMX, and Linux's answer to the request for its
// tiles, which FORGE_STAND_IN_REFUSES=1 turns down.

#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__AMX_TILE__)

#include <immintrin.h>

#include <cmath>

namespace amx_stand_in {

struct Config {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

struct Tile {
  uint32_t rows, row_bytes;
  uint8_t data[16][64];
};

struct Thread {
  bool configured = false;
  Tile tiles[8];
};
inline thread_local Thread thread;

inline void require(bool fits, const char* what) {
  if (fits) return;
  std::fprintf(stderr, "AMX: %s\n", what);
  std::abort();
}

inline void configure(const void* from) {
  Config config;
  std::memcpy(&config, from, sizeof config);
  require(config.palette == 1 && config.start_row == 0, "not a whole configuration");
  for (const uint8_t byte : config.reserved) require(byte == 0, "a reserved byte is set");
  for (int i = 0; i < 16; ++i) {
    const bool is_valid = i < 8 ? config.rows[i] <= 16 && config.row_bytes[i] <= 64
                                : config.rows[i] == 0 && config.row_bytes[i] == 0;
    require(is_valid, "a tile that the processor lacks, or too large");
    if (i < 8) thread.tiles[i] = {config.rows[i], config.row_bytes[i], {}};
  }
  thread.configured = true;
}

inline void release() { thread.configured = false; }

inline Tile& tile(int index) {
  require(thread.configured, "a tile is used without a configuration");
  return thread.tiles[index];
}

inline void zero(int index) { std::memset(tile(index).data, 0, sizeof Tile::data); }

inline void load(int index, const void* base, long stride) {
  zero(index);
  Tile& to = tile(index);
  for (uint32_t row = 0; row < to.rows; ++row) {
    std::memcpy(to.data[row], static_cast<const uint8_t*>(base) + row * stride, to.row_bytes);
  }
}

inline void store(int index, void* base, long stride) {
  const Tile& from = tile(index);
  for (uint32_t row = 0; row < from.rows; ++row) {
    std::memcpy(static_cast<uint8_t*>(base) + row * stride, from.data[row], from.row_bytes);
  }
}

// The operands of a product: c[m][n] += a[m][k] b[k][n], in words of 4 bytes.
struct Operands {
  Tile &c, &a, &b;

  Operands(int c_index, int a_index, int b_index)
      : c(tile(c_index)), a(tile(a_index)), b(tile(b_index)) {
    static const bool breaks = std::getenv("FORGE_STAND_IN_BREAKS") != nullptr;
    require(!breaks, "a product of tiles");
    require(c_index != a_index && c_index != b_index && a_index != b_index, "the same tile twice");
    require(c.rows == a.rows && c.row_bytes == b.row_bytes && a.row_bytes == 4 * b.rows,
            "shapes that do not fit together");
  }
};

template <class Word>
Word word_at(const Tile& tile, uint32_t row, uint32_t index) {
  Word word;
  std::memcpy(&word, tile.data[row] + sizeof(Word) * index, sizeof word);
  return word;
}

inline void multiply_bytes(int c_index, int a_index, int b_index) {
  const Operands of(c_index, a_index, b_index);
  for (uint32_t m = 0; m < of.c.rows; ++m) {
    for (uint32_t n = 0; n < of.c.row_bytes / 4; ++n) {
      auto sum = word_at<int32_t>(of.c, m, n);
      for (uint32_t k = 0; k < of.b.rows; ++k) {
        for (uint32_t i = 0; i < 4; ++i) {
          sum += word_at<int8_t>(of.a, m, 4 * k + i) * word_at<int8_t>(of.b, k, 4 * n + i);
        }
      }
      std::memcpy(of.c.data[m] + 4 * n, &sum, 4);
    }
  }
}

// Numbers below the normal range count as zeros, in operands and results.
inline float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? 0 : x; }

inline float bf16_at(const Tile& tile, uint32_t row, uint32_t index) {
  const uint32_t bits = static_cast<uint32_t>(word_at<uint16_t>(tile, row, index)) << 16;
  float x;
  std::memcpy(&x, &bits, 4);
  return flushed(x);
}

inline void multiply_bf16(int c_index, int a_index, int b_index) {
  const Operands of(c_index, a_index, b_index);
  for (uint32_t m = 0; m < of.c.rows; ++m) {
    for (uint32_t n = 0; n < of.c.row_bytes / 4; ++n) {
      float sums[2] = {0, 0};  // of even and of odd columns
      for (uint32_t k = 0; k < of.b.rows; ++k) {
        for (uint32_t i = 0; i < 2; ++i) {
          sums[i] = flushed(
              std::fmaf(bf16_at(of.a, m, 2 * k + i), bf16_at(of.b, k, 2 * n + i), sums[i]));
        }
      }
      const float sum =
          flushed(flushed(word_at<float>(of.c, m, n)) + flushed(sums[0] + sums[1]));
      std::memcpy(of.c.data[m] + 4 * n, &sum, 4);
    }
  }
}

}  // namespace amx_stand_in

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbssd
#undef _tile_dpbf16ps
#define _tile_loadconfig(config) amx_stand_in::configure(config)
#define _tile_release() amx_stand_in::release()
#define _tile_loadd(tile, base, stride) amx_stand_in::load(tile, base, stride)
#define _tile_stored(tile, base, stride) amx_stand_in::store(tile, base, stride)
#define _tile_zero(tile) amx_stand_in::zero(tile)
#define _tile_dpbssd(c, a, b) amx_stand_in::multiply_bytes(c, a, b)
#define _tile_dpbf16ps(c, a, b) amx_stand_in::multiply_bf16(c, a, b)

#else

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace amx_stand_in {

inline int cpuid(unsigned leaf, unsigned subleaf, unsigned* eax, unsigned* ebx, unsigned* ecx,
                 unsigned* edx) {
  const int known = __get_cpuid_count(leaf, subleaf, eax, ebx, ecx, edx);
  if (leaf == 7 && subleaf == 0) *edx |= 1u << 22 | 1u << 24 | 1u << 25;
  return known;
}

// libstdc++ waits by system calls too.
template <class... Arguments>
long system_call(long number, Arguments... arguments) {
  return syscall(number, arguments...);
}

inline long system_call(long number, int request, int feature) {
  const bool is_known = number == SYS_arch_prctl && request == 0x1023 && feature == 18;
  return is_known && !std::getenv("FORGE_STAND_IN_REFUSES") ? 0 : -1;
}

}  // namespace amx_stand_in

#define __get_cpuid_count(...) amx_stand_in::cpuid(__VA_ARGS__)
#define syscall(...) amx_stand_in::system_call(__VA_ARGS__)

#endif

#pragma once

// The weight formats with fast products, in the layout that products read: each lane reads chunks
// of 16 bytes of quants.
//
// A format F has
//   kRun, kRuns       a chunk holds kRuns runs of kRun consecutive weights
//   kHasMin           weight = scale * q - min, else weight = scale * q
//   kScaled           true if the format has scales
//   kUnit             rows are a whole number of kUnit weights
//   Chunk             a chunk in registers
//   load(row, cols, chunk, codebooks)   reads chunk number `chunk` of a row of `cols` weights
//   four(c, r, j)     four weights of run r, before scaling: small exact numbers
//   column(chunk, r, j)                 the column of the first of them
//   scale(c, r), min(c, r)
// The 64 weights from a multiple of 64 on are always 64 / (kRun * kRuns) whole, consecutive chunks.
// Fours 2 i and 2 i + 1 of a run together are eight columns that begin at a multiple of eight.
//
// On the device, a row consists of planes, one after another, each padded to 16 bytes: all quants,
// then all scales. File blocks have sizes such as 18, 34 and 210 bytes, which 16-byte loads cannot
// read; repack_rows.cu splits them. Block layouts: csrc/common/quant.
//
// In a chunk with scales, the fours are swizzled: position j holds four j ^ s, where s differs from
// chunk to chunk. A lane of matvec.cuh reads one number of x per weight of its chunk, 128 bytes for
// 32 of them. In column order, the eight lanes served at once would all read from the same banks of
// the L1 cache. Swizzled, they read from different banks.

#include "prelude.cuh"

// Number of whole chunks in a row of `cols` weights, and the remainder.
template <class F>
DEVICE u32 chunks_of(u32 cols) {
  constexpr u32 kElements = F::kRun * F::kRuns;
  return (cols + kElements - 1) / kElements;
}

DEVICE float half_at(const u8* p) { return to_float(*reinterpret_cast<const f16*>(p)); }

// 16 bytes of floats, `run` of them.
template <u32 run>
struct FloatChunks {
  static constexpr u32 kRun = run, kRuns = 1, kUnit = 1;
  static constexpr bool kHasMin = false, kScaled = false;
  struct Chunk {
    uint4 bits;
  };
  static DEVICE_MEMBER Chunk load(const u8* row, u32, u32 chunk, const u64*) {
    return {load_streaming(row + u64(chunk) * 16)};
  }
  static constexpr DEVICE_MEMBER u32 column(u32 chunk, u32, u32 j) { return chunk * kRun + 4 * j; }
  static DEVICE_MEMBER float scale(const Chunk&, u32) { return 1.0f; }
  static DEVICE_MEMBER float min(const Chunk&, u32) { return 0.0f; }
};

struct FormatF32 : FloatChunks<4> {
  static DEVICE_MEMBER float4 four(const Chunk& c, u32, u32) {
    return make_float4(__uint_as_float(c.bits.x), __uint_as_float(c.bits.y),
                       __uint_as_float(c.bits.z), __uint_as_float(c.bits.w));
  }
};

// F16 and BF16.
template <class T>
struct FormatHalf : FloatChunks<8> {
  static DEVICE_MEMBER float4 four(const Chunk& c, u32, u32 j) {
    const u32 first = j == 0 ? c.bits.x : c.bits.z, second = j == 0 ? c.bits.y : c.bits.w;
    return make_float4(low_as(T{}, first), high_as(T{}, first), low_as(T{}, second),
                       high_as(T{}, second));
  }
};
using FormatF16 = FormatHalf<f16>;
using FormatBF16 = FormatHalf<bf16>;

// 16 bytes of weights that share a scale.
template <u32 runs>
struct ScaledChunks {
  static constexpr u32 kRun = 16, kRuns = runs, kUnit = 32;
  static constexpr bool kHasMin = false, kScaled = true;
  struct Chunk {
    uint4 bits;
    float d;
  };
  static DEVICE_MEMBER float scale(const Chunk& c, u32) { return c.d; }
  static DEVICE_MEMBER float min(const Chunk&, u32) { return 0.0f; }
};

// Position n in its chunk holds weight n ^ swizzle_16(unit) of the 16 weights of a run;
// neighbouring lanes have neighbouring units.
DEVICE constexpr u32 swizzle_16(u32 unit) { return unit % 4 * 4; }
// The same for the 32 weights of a chunk, whose halves are swapped, too.
DEVICE constexpr u32 swizzle_32(u32 chunk) { return chunk % 4 * 4 + chunk / 4 % 2 * 16; }

// qs[cols] signed bytes | d[cols / 32].
struct FormatQ8_0 : ScaledChunks<1> {
  static DEVICE_MEMBER Chunk load(const u8* row, u32 cols, u32 chunk, const u64*) {
    return {load_streaming(row + u64(chunk) * 16), half_at(row + cols + chunk / 2 * 2)};
  }
  static constexpr DEVICE_MEMBER u32 column(u32 chunk, u32, u32 j) {
    return (chunk * 16 + swizzle_16(chunk / 2)) ^ 4 * j;
  }
  static DEVICE_MEMBER float4 four(const Chunk& c, u32, u32 j) {
    return bytes_to_floats(word_of(c.bits, j) ^ 0x80808080u, 128.0f);
  }
};

// Four E4M3 numbers times 2^-8: with the sign bit moved to the top they are F16, including
// subnormal numbers. 0x7f becomes 480; blocks with a NaN have a NaN scale
// (csrc/common/quant/fp8.h).
DEVICE float4 e4m3_to_floats(u32 bytes) {
  const u32 even = (bytes << 8 & 0x80008000u) | (bytes << 7 & 0x3f803f80u);
  const u32 odd = (bytes & 0x80008000u) | (bytes >> 1 & 0x3f803f80u);
  return make_float4(low_as(f16{}, even), low_as(f16{}, odd), high_as(f16{}, even),
                     high_as(f16{}, odd));
}

// qs[cols] in E4M3 | d[cols / 32] in F32.
struct FormatFP8 : ScaledChunks<1> {
  static DEVICE_MEMBER Chunk load(const u8* row, u32 cols, u32 chunk, const u64*) {
    const float d = *reinterpret_cast<const float*>(row + cols + chunk / 2 * 4);
    return {load_streaming(row + u64(chunk) * 16), d * 256.0f};
  }
  static constexpr DEVICE_MEMBER u32 column(u32 chunk, u32, u32 j) {
    return FormatQ8_0::column(chunk, 0, j);
  }
  static DEVICE_MEMBER float4 four(const Chunk& c, u32, u32 j) {
    return e4m3_to_floats(word_of(c.bits, j));
  }
};

// qs[cols / 2], byte i of a chunk = position i | position i + 16 << 4 | d[cols / 32].
struct FormatQ4_0 : ScaledChunks<2> {
  static DEVICE_MEMBER Chunk load(const u8* row, u32 cols, u32 chunk, const u64*) {
    return {load_streaming(row + u64(chunk) * 16), half_at(row + cols / 2 + chunk * 2)};
  }
  static constexpr DEVICE_MEMBER u32 column(u32 chunk, u32 r, u32 j) {
    return (chunk * 32 + swizzle_32(chunk)) ^ (16 * r + 4 * j);
  }
  static DEVICE_MEMBER float4 four(const Chunk& c, u32 r, u32 j) {
    return bytes_to_floats(word_of(c.bits, j) >> (4 * r) & 0x0f0f0f0fu, 8.0f);
  }
};

// File blocks, except for the swizzle: 144 bytes are nine 16-byte words. The first word holds d,
// dmin and the 6-bit scales and minima. Word 1 + c holds the weights of chunk c: 16 of sub-block
// 2 (c / 2) in the low four bits, 16 of the next sub-block in the high four bits. Eight
// neighbouring lanes share a first word.
struct FormatQ4_K {
  static constexpr u32 kRun = 16, kRuns = 2, kUnit = 256;
  static constexpr bool kHasMin = true, kScaled = true;
  struct Chunk {
    uint4 bits;
    float scales[2];
    float mins[2];
  };
  static DEVICE_MEMBER Chunk load(const u8* row, u32, u32 chunk, const u64*) {
    const u8* block = row + u64(chunk / 8) * 144;
    const uint4 head = *reinterpret_cast<const uint4*>(block);
    Chunk c;
    c.bits = load_streaming(block + 16 + chunk % 8 * 16);
    const float d = low_as(f16{}, head.x), dmin = high_as(f16{}, head.x);
    const u32 pair = chunk % 8 / 2;  // of sub-blocks
#pragma unroll
    for (u32 r = 0; r < 2; ++r) {
      const u32 shift = 8 * ((2 * pair + r) % 4);
      const u32 y = head.y >> shift, z = head.z >> shift, w = head.w >> shift;
      const u32 scale = pair < 2 ? y & 63 : (w & 0xf) | (y >> 6 & 3) << 4;
      const u32 least = pair < 2 ? z & 63 : (w >> 4 & 0xf) | (z >> 6 & 3) << 4;
      c.scales[r] = d * float(scale);
      c.mins[r] = dmin * float(least);
    }
    return c;
  }
  static constexpr DEVICE_MEMBER u32 column(u32 chunk, u32 r, u32 j) {
    const u32 first = chunk / 8 * 256 + chunk % 8 / 2 * 64 + chunk % 2 * 16;
    return (first + swizzle_16(chunk / 2)) ^ (32 * r + 4 * j);
  }
  static DEVICE_MEMBER float4 four(const Chunk& c, u32 r, u32 j) {
    return bytes_to_floats(word_of(c.bits, j) >> (4 * r) & 0x0f0f0f0fu);
  }
  static DEVICE_MEMBER float scale(const Chunk& c, u32 r) { return c.scales[r]; }
  static DEVICE_MEMBER float min(const Chunk& c, u32 r) { return c.mins[r]; }
};

// For each 32 weights: ql[16], byte i = position i | position i + 16 << 4 (low four bits of q), and
// qh[8], byte i = upper two bits of positions i, i + 8, i + 16, i + 24 from the low bits up.
// ql[cols / 2] | qh[cols / 4] | scales[cols / 16] signed bytes, in the order of the positions |
// d[cols / 256].
struct FormatQ6_K {
  static constexpr u32 kRun = 16, kRuns = 2, kUnit = 256;
  static constexpr bool kHasMin = false, kScaled = true;
  struct Chunk {
    uint4 low;
    uint2 high;
    float scales[2];
  };
  static DEVICE_MEMBER Chunk load(const u8* row, u32 cols, u32 chunk, const u64*) {
    const u8* high = row + cols / 2;
    const i8* scales = reinterpret_cast<const i8*>(high + cols / 4) + chunk * 2;
    const float d = half_at(high + cols / 4 + cols / 16 + chunk / 8 * 2);
    Chunk c;
    c.low = load_streaming(row + u64(chunk) * 16);
    c.high = *reinterpret_cast<const uint2*>(high + u64(chunk) * 8);
    c.scales[0] = d * float(scales[0]);
    c.scales[1] = d * float(scales[1]);
    return c;
  }
  static constexpr DEVICE_MEMBER u32 column(u32 chunk, u32 r, u32 j) {
    return (chunk * 32 + swizzle_32(chunk)) ^ (16 * r + 4 * j);
  }
  static DEVICE_MEMBER float4 four(const Chunk& c, u32 r, u32 j) {
    const u32 low = word_of(c.low, j) >> (4 * r) & 0x0f0f0f0fu;
    const u32 high = (j % 2 == 0 ? c.high.x : c.high.y) >> (4 * r + 2 * (j / 2)) & 0x03030303u;
    return bytes_to_floats(low | high << 4, 32.0f);
  }
  static DEVICE_MEMBER float scale(const Chunk& c, u32 r) { return c.scales[r]; }
  static DEVICE_MEMBER float min(const Chunk&, u32) { return 0.0f; }
};

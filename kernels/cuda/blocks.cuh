#pragma once

// All other weight formats, in the block layout of the file: Blocks<type>, where type is the number
// in csrc/abi/weights.h. A lane decodes 32 consecutive weights at once, byte by byte if the layout
// requires it, so that every format works in every product. The fast formats are in formats.cuh.
//
// Layouts and formulas are those of csrc/common/quant; results agree exactly.

#include "codebooks.cuh"
#include "formats.cuh"

DEVICE u32 u16_at(const u8* p) { return p[0] | u32(p[1]) << 8; }
DEVICE float f16_at(const u8* p) { return to_float(f16{u16(u16_at(p))}); }

// Decoder<type> has the number of weights and bytes of a block, and decode(block, group, w,
// codebooks), which writes weights 32 group .. 32 group + 31 of a block to w.
template <u32 type>
struct Decoder;

// Byte i of qs holds weight i in its low four bits and weight i + 16 in its high four bits.
DEVICE u32 half_nibble(const u8* qs, u32 i) { return qs[i % 16] >> (i / 16 * 4) & 0xf; }

template <>
struct Decoder<3> {  // Q4_1: d, m, qs[16]
  static constexpr u32 kWeights = 32, kBytes = 20;
  static DEVICE_MEMBER void decode(const u8* block, u32, float* w, const u64*) {
    const float d = f16_at(block), m = f16_at(block + 2);
    for (u32 i = 0; i < 32; ++i) w[i] = d * float(half_nibble(block + 4, i)) + m;
  }
};

template <>
struct Decoder<6> {  // Q5_0: d, qh[4], qs[16]
  static constexpr u32 kWeights = 32, kBytes = 22;
  static DEVICE_MEMBER void decode(const u8* block, u32, float* w, const u64*) {
    const float d = f16_at(block);
    const u32 high = u16_at(block + 2) | u16_at(block + 4) << 16;
    for (u32 i = 0; i < 32; ++i) {
      w[i] = d * float(i32(half_nibble(block + 6, i) | (high >> i & 1) << 4) - 16);
    }
  }
};

template <>
struct Decoder<7> {  // Q5_1: d, m, qh[4], qs[16]
  static constexpr u32 kWeights = 32, kBytes = 24;
  static DEVICE_MEMBER void decode(const u8* block, u32, float* w, const u64*) {
    const float d = f16_at(block), m = f16_at(block + 2);
    const u32 high = u16_at(block + 4) | u16_at(block + 6) << 16;
    for (u32 i = 0; i < 32; ++i) {
      w[i] = d * float(half_nibble(block + 8, i) | (high >> i & 1) << 4) + m;
    }
  }
};

template <>
struct Decoder<10> {  // Q2_K: scales[16], qs[64], d, dmin
  static constexpr u32 kWeights = 256, kBytes = 84;
  static DEVICE_MEMBER void decode(const u8* block, u32 group, float* w, const u64*) {
    const float d = f16_at(block + 80), dmin = f16_at(block + 82);
    for (u32 i = 0; i < 32; ++i) {
      const u32 packed = block[2 * group + i / 16];
      const u32 q = block[16 + 32 * (group / 4) + i] >> (2 * (group % 4)) & 3;
      w[i] = d * float(packed & 0xf) * float(q) - dmin * float(packed >> 4);
    }
  }
};

template <>
struct Decoder<11> {  // Q3_K: hmask[32], qs[64], scales[12], d
  static constexpr u32 kWeights = 256, kBytes = 110;
  static DEVICE_MEMBER void decode(const u8* block, u32 group, float* w, const u64*) {
    const float d = f16_at(block + 108);
    const u8* scales = block + 96;
    for (u32 i = 0; i < 32; ++i) {
      const u32 s = 2 * group + i / 16;
      const u32 scale = (scales[s % 8] >> (4 * (s / 8)) & 0xf) |
                        (scales[8 + s % 4] >> (2 * (s / 4)) & 3) << 4;
      const u32 low = block[32 + 32 * (group / 4) + i] >> (2 * (group % 4)) & 3;
      const u32 high = block[i] >> group & 1;
      w[i] = d * float(i32(scale) - 32) * float(i32(low | high << 2) - 4);
    }
  }
};

template <>
struct Decoder<13> {  // Q5_K: d, dmin, scales[12], qh[32], qs[128]
  static constexpr u32 kWeights = 256, kBytes = 176;
  static DEVICE_MEMBER void decode(const u8* block, u32 group, float* w, const u64*) {
    const u8* s = block + 4;
    const u32 low4 = group % 4;
    const u32 scale = group < 4 ? s[group] & 63 : (s[group + 4] & 0xf) | s[low4] >> 6 << 4;
    const u32 least = group < 4 ? s[group + 4] & 63 : s[group + 4] >> 4 | s[low4 + 4] >> 6 << 4;
    const float d = f16_at(block) * float(scale), min = f16_at(block + 2) * float(least);
    for (u32 i = 0; i < 32; ++i) {
      const u32 low = block[48 + 32 * (group / 2) + i] >> (4 * (group % 2)) & 0xf;
      w[i] = d * float(low | (block[16 + i] >> group & 1) << 4) - min;
    }
  }
};

// An entry of a table of 16 signed bytes, packed into two words.
DEVICE float level_of(u64 low, u64 high, u32 q) {
  return float(i8((q < 8 ? low : high) >> (8 * (q % 8))));
}
// -127 -104 -83 -65 -49 -35 -22 -10 | 1 13 25 38 53 69 89 113
DEVICE float iq4_level(u32 q) {
  return level_of(0xf6eaddcfbfad9881ull, 0x7159453526190d01ull, q);
}
// 0 1 2 3 4 6 8 12, then the same values negated: E2M1, doubled.
DEVICE float e2m1_level(u32 q) {
  return level_of(0x0c08060403020100ull, 0xf4f8fafcfdfeff00ull, q);
}

// A sign, four bits of exponent and three of fraction: in the place of a float16's it is the number
// times 2^-8 (csrc/common/quant/fp8.h).
DEVICE float e4m3(u32 code) {
  return to_float(f16{u16((code & 0x80) << 8 | (code & 0x7f) << 7)}) * 256.0f;
}

template <>
struct Decoder<20> {  // IQ4_NL: d, qs[16]
  static constexpr u32 kWeights = 32, kBytes = 18;
  static DEVICE_MEMBER void decode(const u8* block, u32, float* w, const u64*) {
    const float d = f16_at(block);
    for (u32 i = 0; i < 32; ++i) w[i] = d * iq4_level(half_nibble(block + 2, i));
  }
};

template <>
struct Decoder<23> {  // IQ4_XS: d, scales_h[2], scales_l[4], qs[128]
  static constexpr u32 kWeights = 256, kBytes = 136;
  static DEVICE_MEMBER void decode(const u8* block, u32 group, float* w, const u64*) {
    const u32 low = block[4 + group / 2] >> (4 * (group % 2)) & 0xf;
    const u32 high = u16_at(block + 2) >> (2 * group) & 3;
    const float scale = f16_at(block) * float(i32(low | high << 4) - 32);
    for (u32 i = 0; i < 32; ++i) w[i] = scale * iq4_level(half_nibble(block + 8 + 16 * group, i));
  }
};

template <>
struct Decoder<34> {  // TQ1_0: qs[48], qh[4], d
  static constexpr u32 kWeights = 256, kBytes = 54;
  // The leading base-3 digit after dropping k: a byte is a fraction of 256, rounded up.
  static DEVICE_MEMBER float digit(u32 byte, u32 k) {
    const u32 power = k == 0 ? 1 : k == 1 ? 3 : k == 2 ? 9 : k == 3 ? 27 : 81;
    return float(i32((byte * power & 0xff) * 3 >> 8) - 1);
  }
  static DEVICE_MEMBER void decode(const u8* block, u32 group, float* w, const u64*) {
    const float d = f16_at(block + 52);
    for (u32 n = 0; n < 32; ++n) {
      const u32 i = 32 * group + n;
      const float value = i < 160   ? digit(block[i % 32], i / 32)
                          : i < 240 ? digit(block[32 + i % 16], (i - 160) / 16)
                                    : digit(block[48 + i % 4], (i - 240) / 4);
      w[n] = d * value;
    }
  }
};

template <>
struct Decoder<35> {  // TQ2_0: qs[64], d
  static constexpr u32 kWeights = 256, kBytes = 66;
  static DEVICE_MEMBER void decode(const u8* block, u32 group, float* w, const u64*) {
    const float d = f16_at(block + 64);
    for (u32 i = 0; i < 32; ++i) {
      const u32 q = block[32 * (group / 4) + i] >> (2 * (group % 4)) & 3;
      w[i] = d * float(i32(q) - 1);
    }
  }
};

template <>
struct Decoder<39> {  // MXFP4: e, qs[16]
  static constexpr u32 kWeights = 32, kBytes = 17;
  static DEVICE_MEMBER void decode(const u8* block, u32, float* w, const u64*) {
    // 2^(e - 128): half the scale, since the levels are doubled; subnormal for e of 0 and 1. 255
    // is NaN.
    const u32 e = block[0];
    const u32 number = e < 2 ? 0x00200000u << e : (e - 1) << 23;
    const float scale = __uint_as_float(e == 255 ? 0x7fc00000u : number);
    for (u32 i = 0; i < 32; ++i) w[i] = scale * e2m1_level(half_nibble(block + 1, i));
  }
};

template <>
struct Decoder<257> {  // FP4: d[4], scales[4], qs[32]
  static constexpr u32 kWeights = 64, kBytes = 40;
  static DEVICE_MEMBER void decode(const u8* block, u32 group, float* w, const u64*) {
    const float half = 0.5f * __uint_as_float(u16_at(block) | u16_at(block + 2) << 16);
    for (u32 i = 0; i < 32; ++i) {
      const float scale = half * e4m3(block[4 + 2 * group + i / 16]);
      w[i] = scale * e2m1_level(half_nibble(block + 8 + 16 * group, i));
    }
  }
};

template <u32 type>
struct Blocks {
  static constexpr u32 kCols = 32, kUnit = 32, kRegisters = 32;
  struct Chunk {
    float w[32];
  };
  static DEVICE_MEMBER Chunk load(const u8* row, u32, u32 chunk, const u64* codebooks) {
    constexpr u32 kGroups = Decoder<type>::kWeights / 32;
    Chunk c;
    Decoder<type>::decode(row + u64(chunk / kGroups) * Decoder<type>::kBytes, chunk % kGroups, c.w,
                          codebooks);
    return c;
  }
  static DEVICE_MEMBER void floats(const Chunk& c, u32 p, float (&w)[8]) {
#pragma unroll
    for (u32 i = 0; i < 8; ++i) w[i] = c.w[8 * p + i];
  }
  template <class T>
  static DEVICE_MEMBER uint4 words(const Chunk& c, u32 p) {
    return packed_unit<Blocks, T>(c, p);
  }
};

// True for formats whose weights are decoded while they are loaded.
template <class F>
constexpr bool kDecodedByLoad = false;
template <u32 type>
constexpr bool kDecodedByLoad<Blocks<type>> = true;

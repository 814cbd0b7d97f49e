#pragma once

// All other weight formats: Blocks<type>, where type is the number in
// csrc/abi/weights.h. A lane decodes 32 consecutive weights at once, byte by byte if the layout
// requires it, so that every format works in every product. The fast formats are in formats.h.
//
// Layouts and formulas are those of csrc/common/quant; results agree exactly.

#include "codebooks.h"
#include "formats.h"

// Byte i of qs holds weight i in its low four bits and weight i + 16 in its high four bits.
inline uint half_nibble(device const u8* qs, uint i) { return qs[i % 16] >> (i / 16 * 4) & 0xf; }

template <>
struct Decoder<3> {  // Q4_1: d, m, qs[16]
  CONSTANT uint kWeights = 32, kBytes = 20;
  static void decode(device const u8* block, uint, thread float* w, device const ulong*) {
    const float d = f16_at(block), m = f16_at(block + 2);
    for (uint i = 0; i < 32; ++i) w[i] = d * float(half_nibble(block + 4, i)) + m;
  }
};

template <>
struct Decoder<6> {  // Q5_0: d, qh[4], qs[16]
  CONSTANT uint kWeights = 32, kBytes = 22;
  static void decode(device const u8* block, uint, thread float* w, device const ulong*) {
    const float d = f16_at(block);
    const uint high = u16_at(block + 2) | u16_at(block + 4) << 16;
    for (uint i = 0; i < 32; ++i) {
      w[i] = d * float(int(half_nibble(block + 6, i) | (high >> i & 1) << 4) - 16);
    }
  }
};

template <>
struct Decoder<7> {  // Q5_1: d, m, qh[4], qs[16]
  CONSTANT uint kWeights = 32, kBytes = 24;
  static void decode(device const u8* block, uint, thread float* w, device const ulong*) {
    const float d = f16_at(block), m = f16_at(block + 2);
    const uint high = u16_at(block + 4) | u16_at(block + 6) << 16;
    for (uint i = 0; i < 32; ++i) {
      w[i] = d * float(half_nibble(block + 8, i) | (high >> i & 1) << 4) + m;
    }
  }
};

template <>
struct Decoder<10> {  // Q2_K: scales[16], qs[64], d, dmin
  CONSTANT uint kWeights = 256, kBytes = 84;
  static void decode(device const u8* block, uint group, thread float* w, device const ulong*) {
    const float d = f16_at(block + 80), dmin = f16_at(block + 82);
    for (uint i = 0; i < 32; ++i) {
      const uint packed = block[2 * group + i / 16];
      const uint q = block[16 + 32 * (group / 4) + i] >> (2 * (group % 4)) & 3;
      w[i] = d * float(packed & 0xf) * float(q) - dmin * float(packed >> 4);
    }
  }
};

template <>
struct Decoder<11> {  // Q3_K: hmask[32], qs[64], scales[12], d
  CONSTANT uint kWeights = 256, kBytes = 110;
  static void decode(device const u8* block, uint group, thread float* w, device const ulong*) {
    const float d = f16_at(block + 108);
    device const u8* scales = block + 96;
    for (uint i = 0; i < 32; ++i) {
      const uint s = 2 * group + i / 16;
      const uint scale = (scales[s % 8] >> (4 * (s / 8)) & 0xf) |
                         (scales[8 + s % 4] >> (2 * (s / 4)) & 3) << 4;
      const uint low = block[32 + 32 * (group / 4) + i] >> (2 * (group % 4)) & 3;
      const uint high = block[i] >> group & 1;
      w[i] = d * float(int(scale) - 32) * float(int(low | high << 2) - 4);
    }
  }
};

template <>
struct Decoder<13> {  // Q5_K: d, dmin, scales[12], qh[32], qs[128]
  CONSTANT uint kWeights = 256, kBytes = 176;
  static void decode(device const u8* block, uint group, thread float* w, device const ulong*) {
    device const u8* s = block + 4;
    const uint low4 = group % 4;
    const uint scale = group < 4 ? s[group] & 63 : (s[group + 4] & 0xf) | s[low4] >> 6 << 4;
    const uint least = group < 4 ? s[group + 4] & 63 : s[group + 4] >> 4 | s[low4 + 4] >> 6 << 4;
    const float d = f16_at(block) * float(scale), min = f16_at(block + 2) * float(least);
    for (uint i = 0; i < 32; ++i) {
      const uint low = block[48 + 32 * (group / 2) + i] >> (4 * (group % 2)) & 0xf;
      w[i] = d * float(low | (block[16 + i] >> group & 1) << 4) - min;
    }
  }
};

template <>
struct Decoder<14> {  // Q6_K, for gemm.metal: ql[128], qh[64], scales[16], d
  CONSTANT uint kWeights = 256, kBytes = 210;
  static void decode(device const u8* block, uint group, thread float* w, device const ulong*) {
    const uint half_block = group / 4, quarter = group % 4;
    device const u8* low = block + 64 * half_block + quarter % 2 * 32;
    device const u8* high = block + 128 + 32 * half_block;
    device const u8* scales = block + 192 + 2 * group;
    const float d = f16_at(block + 208);
    for (uint i = 0; i < 32; ++i) {
      const uint q = (low[i] >> (quarter / 2 * 4) & 0xf) | (high[i] >> (2 * quarter) & 3) << 4;
      w[i] = d * float(i8(scales[i / 16])) * float(int(q) - 32);
    }
  }
};

constant i8 kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};
// E2M1, doubled.
constant i8 kE2m1Levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

template <>
struct Decoder<20> {  // IQ4_NL: d, qs[16]
  CONSTANT uint kWeights = 32, kBytes = 18;
  static void decode(device const u8* block, uint, thread float* w, device const ulong*) {
    const float d = f16_at(block);
    for (uint i = 0; i < 32; ++i) w[i] = d * float(kIq4Levels[half_nibble(block + 2, i)]);
  }
};

template <>
struct Decoder<23> {  // IQ4_XS: d, scales_h[2], scales_l[4], qs[128]
  CONSTANT uint kWeights = 256, kBytes = 136;
  static void decode(device const u8* block, uint group, thread float* w, device const ulong*) {
    const uint low = block[4 + group / 2] >> (4 * (group % 2)) & 0xf;
    const uint high = u16_at(block + 2) >> (2 * group) & 3;
    const float scale = f16_at(block) * float(int(low | high << 4) - 32);
    for (uint i = 0; i < 32; ++i) {
      w[i] = scale * float(kIq4Levels[half_nibble(block + 8 + 16 * group, i)]);
    }
  }
};

// The leading base-3 digit after dropping k, minus one: a byte is a fraction of 256, rounded up.
inline float ternary_digit(uint byte, uint k) {
  const uint power = k == 0 ? 1 : k == 1 ? 3 : k == 2 ? 9 : k == 3 ? 27 : 81;
  return float(int((byte * power & 0xff) * 3 >> 8) - 1);
}

template <>
struct Decoder<34> {  // TQ1_0: qs[48], qh[4], d
  CONSTANT uint kWeights = 256, kBytes = 54;
  static void decode(device const u8* block, uint group, thread float* w, device const ulong*) {
    const float d = f16_at(block + 52);
    for (uint n = 0; n < 32; ++n) {
      const uint i = 32 * group + n;
      const float value = i < 160   ? ternary_digit(block[i % 32], i / 32)
                          : i < 240 ? ternary_digit(block[32 + i % 16], (i - 160) / 16)
                                    : ternary_digit(block[48 + i % 4], (i - 240) / 4);
      w[n] = d * value;
    }
  }
};

template <>
struct Decoder<35> {  // TQ2_0: qs[64], d
  CONSTANT uint kWeights = 256, kBytes = 66;
  static void decode(device const u8* block, uint group, thread float* w, device const ulong*) {
    const float d = f16_at(block + 64);
    for (uint i = 0; i < 32; ++i) {
      const uint q = block[32 * (group / 4) + i] >> (2 * (group % 4)) & 3;
      w[i] = d * float(int(q) - 1);
    }
  }
};

template <>
struct Decoder<39> {  // MXFP4: e, qs[16]
  CONSTANT uint kWeights = 32, kBytes = 17;
  static void decode(device const u8* block, uint, thread float* w, device const ulong*) {
    // 2^(e - 128): half the scale, since the levels are doubled. For e of 0 and 1 that is
    // subnormal, which GPUs may take for 0, so the levels carry a factor of 1/4. 255 is NaN.
    const uint e = block[0];
    const bool is_small = e < 2;
    const float unit = is_small ? 0.25f : 1.0f;
    const float scale = as_type<float>(e == 255 ? 0x7fc00000u : (is_small ? e + 1 : e - 1) << 23);
    for (uint i = 0; i < 32; ++i) {
      w[i] = scale * (unit * float(kE2m1Levels[half_nibble(block + 1, i)]));
    }
  }
};

template <>
struct Decoder<257> {  // FP4: d[4], scales[4], qs[32]
  CONSTANT uint kWeights = 64, kBytes = 40;
  static void decode(device const u8* block, uint group, thread float* w, device const ulong*) {
    const float half_d = 0.5f * as_type<float>(u16_at(block) | u16_at(block + 2) << 16);
    for (uint i = 0; i < 32; ++i) {
      const float scale = half_d * (e4m3_bytes(block[4 + 2 * group + i / 16]).x * 256.0f);
      w[i] = scale * float(kE2m1Levels[half_nibble(block + 8 + 16 * group, i)]);
    }
  }
};

template <uint type>
struct Blocks {
  CONSTANT uint kRun = 32, kRuns = 1, kUnit = 32;
  CONSTANT bool kHasMin = false, kScaled = false;
  struct Chunk {
    float w[32];
  };
  template <bool whole>
  static Chunk load(device const u8* row, uint, uint chunk, device const ulong* codebooks) {
    const uint groups = Decoder<type>::kWeights / 32;
    Chunk c;
    Decoder<type>::decode(row + ulong(chunk / groups) * Decoder<type>::kBytes, chunk % groups, c.w,
                          codebooks);
    return c;
  }
  static uint run_start(uint chunk, uint) { return chunk * 32; }
  static float4 four(thread const Chunk& c, uint, uint j) {
    return float4(c.w[4 * j], c.w[4 * j + 1], c.w[4 * j + 2], c.w[4 * j + 3]);
  }
  static float scale(thread const Chunk&, uint) { return 1.0f; }
  static float min(thread const Chunk&, uint) { return 0.0f; }
};

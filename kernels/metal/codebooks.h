#pragma once

// The codebook formats IQ1, IQ2 and IQ3: a field of a block is an index into a table of vectors of
// four or eight weights, one byte per weight. One buffer holds all tables (csrc/common/quant), in
// the order of arguments.h.

#include "prelude.h"

// Decoder<type> has the number of weights and bytes of a block, and decode(block, group, w,
// codebooks), which writes weights 32 group .. 32 group + 31 of a block to w.
template <uint type>
struct Decoder;

inline uint u16_at(device const u8* p) { return p[0] | uint(p[1]) << 8; }
inline float f16_at(device const u8* p) { return float(as_type<half>(ushort(u16_at(p)))); }

// Offsets of the tables in the buffer, in units of eight bytes.
CONSTANT uint kIq1Grid = 0;                       // 2048 words of 8 signed bytes
CONSTANT uint kIq2XxsGrid = kIq1Grid + 2048;      // 256 words of 8 bytes
CONSTANT uint kIq2XsGrid = kIq2XxsGrid + 256;     // 512
CONSTANT uint kIq2SGrid = kIq2XsGrid + 512;       // 1024
CONSTANT uint kIq3XxsGrid = kIq2SGrid + 1024;     // 256 words of 4 bytes
CONSTANT uint kIq3SGrid = kIq3XxsGrid + 256 / 2;  // 512 words of 4 bytes

// Returns eight sign bits for seven: the eighth makes the number of minus signs even.
inline uint even_signs(uint seven_bits) { return seven_bits | (popcount(seven_bits) & 1) << 7; }

inline uint nibble_of(device const u8* bytes, uint i) {
  return bytes[i / 2] >> (4 * (i % 2)) & 0xf;
}

// w[i] = +- scale * byte i, negative if bit i of `signs` is set.
inline void decode_codeword(uint2 magnitudes, uint signs, float scale, thread float* w) {
  for (uint i = 0; i < 8; ++i) {
    const float magnitude = float(magnitudes[i / 4] >> (8 * (i % 4)) & 0xff);
    w[i] = (signs >> i & 1) != 0 ? -scale * magnitude : scale * magnitude;
  }
}
inline uint2 codeword(device const ulong* table, uint index) {
  return *(device const uint2*)(table + index);
}
inline uint2 two_codewords(device const ulong* table, uint first, uint second) {
  device const uint* words = (device const uint*)table;
  return uint2(words[first], words[second]);
}

// w[i] = scale * (value i +- 1/8).
inline void decode_ternary(uint2 values, bool down, float scale, thread float* w) {
  for (uint i = 0; i < 8; ++i) {
    const float value = float(i8(values[i / 4] >> (8 * (i % 4)) & 0xff));
    w[i] = scale * (value + (down ? -0.125f : 0.125f));
  }
}

template <>
struct Decoder<16> {  // IQ2_XXS: d, 8 x (qs[4], scale and signs[4])
  CONSTANT uint kWeights = 256, kBytes = 66;
  static void decode(device const u8* block, uint group, thread float* w,
                     device const ulong* codebooks) {
    device const u8* sub = block + 2 + 8 * group;
    const uint packed = u16_at(sub + 4) | u16_at(sub + 6) << 16;
    const float scale = f16_at(block) * (0.5f + float(packed >> 28)) * 0.25f;
    for (uint k = 0; k < 4; ++k) {
      decode_codeword(codeword(codebooks + kIq2XxsGrid, sub[k]),
                      even_signs(packed >> (7 * k) & 0x7f), scale, w + 8 * k);
    }
  }
};

template <>
struct Decoder<17> {  // IQ2_XS: d, qs[32] of 16 bits, scales[8]
  CONSTANT uint kWeights = 256, kBytes = 74;
  static void decode(device const u8* block, uint group, thread float* w,
                     device const ulong* codebooks) {
    for (uint k = 0; k < 4; ++k) {
      const uint q = u16_at(block + 2 + 8 * group + 2 * k);
      const uint step = nibble_of(block + 66, 2 * group + k / 2);
      const float scale = f16_at(block) * (0.5f + float(step)) * 0.25f;
      decode_codeword(codeword(codebooks + kIq2XsGrid, q & 0x1ff), even_signs(q >> 9), scale,
                      w + 8 * k);
    }
  }
};

template <>
struct Decoder<22> {  // IQ2_S: d, qs[32], signs[32], qh[8], scales[8]
  CONSTANT uint kWeights = 256, kBytes = 82;
  static void decode(device const u8* block, uint group, thread float* w,
                     device const ulong* codebooks) {
    for (uint k = 0; k < 4; ++k) {
      const uint at = 4 * group + k;
      const uint index = block[2 + at] | (block[66 + group] >> (2 * k) & 3) << 8;
      const uint step = nibble_of(block + 74, 2 * group + k / 2);
      const float scale = f16_at(block) * (0.5f + float(step)) * 0.25f;
      decode_codeword(codeword(codebooks + kIq2SGrid, index), block[34 + at], scale, w + 8 * k);
    }
  }
};

template <>
struct Decoder<18> {  // IQ3_XXS: d, qs[64], 8 x (scale and signs[4])
  CONSTANT uint kWeights = 256, kBytes = 98;
  static void decode(device const u8* block, uint group, thread float* w,
                     device const ulong* codebooks) {
    device const u8* at = block + 66 + 4 * group;
    const uint packed = u16_at(at) | u16_at(at + 2) << 16;
    const float scale = f16_at(block) * (0.5f + float(packed >> 28)) * 0.5f;
    for (uint k = 0; k < 4; ++k) {
      device const u8* q = block + 2 + 8 * group + 2 * k;
      decode_codeword(two_codewords(codebooks + kIq3XxsGrid, q[0], q[1]),
                      even_signs(packed >> (7 * k) & 0x7f), scale, w + 8 * k);
    }
  }
};

template <>
struct Decoder<21> {  // IQ3_S: d, qs[64], qh[8], signs[32], scales[4]
  CONSTANT uint kWeights = 256, kBytes = 110;
  static void decode(device const u8* block, uint group, thread float* w,
                     device const ulong* codebooks) {
    const float scale = f16_at(block) * float(1 + 2 * nibble_of(block + 106, group));
    const uint high = block[66 + group];
    for (uint k = 0; k < 4; ++k) {
      device const u8* q = block + 2 + 8 * group + 2 * k;
      const uint first = q[0] | (high >> (2 * k) & 1) << 8;
      const uint second = q[1] | (high >> (2 * k + 1) & 1) << 8;
      decode_codeword(two_codewords(codebooks + kIq3SGrid, first, second),
                      block[74 + 4 * group + k], scale, w + 8 * k);
    }
  }
};

template <>
struct Decoder<19> {  // IQ1_S: d, qs[32], qh[8] of 16 bits
  CONSTANT uint kWeights = 256, kBytes = 50;
  static void decode(device const u8* block, uint group, thread float* w,
                     device const ulong* codebooks) {
    const uint high = u16_at(block + 34 + 2 * group);
    const float scale = f16_at(block) * float(1 + 2 * (high >> 12 & 7));
    for (uint k = 0; k < 4; ++k) {
      const uint index = block[2 + 4 * group + k] | (high >> (3 * k) & 7) << 8;
      decode_ternary(codeword(codebooks + kIq1Grid, index), (high & 0x8000) != 0, scale,
                     w + 8 * k);
    }
  }
};

template <>
struct Decoder<29> {  // IQ1_M: qs[32], qh[16], scales[4] of 16 bits, whose upper bits form d
  CONSTANT uint kWeights = 256, kBytes = 56;
  static void decode(device const u8* block, uint group, thread float* w,
                     device const ulong* codebooks) {
    device const u8* scales = block + 48;
    uint d_bits = 0;
    for (uint n = 0; n < 4; ++n) d_bits |= u16_at(scales + 2 * n) >> 12 << (4 * n);
    const float d = float(as_type<half>(ushort(d_bits)));
    for (uint k = 0; k < 4; ++k) {
      const uint at = 4 * group + k, s = at / 2;
      const uint scale = u16_at(scales + s / 4 * 2) >> (3 * (s % 4)) & 7;
      const uint high = nibble_of(block + 32, at);
      decode_ternary(codeword(codebooks + kIq1Grid, block[at] | (high & 7) << 8), (high & 8) != 0,
                     d * float(1 + 2 * scale), w + 8 * k);
    }
  }
};

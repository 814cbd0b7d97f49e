#pragma once

// The codebook formats IQ1, IQ2 and IQ3: a field of a block is an index into a table of vectors of
// four or eight weights, one byte per weight. One buffer holds all tables (csrc/common/quant), one
// after another; the library uploads it when a model needs it.

#include "prelude.cuh"

template <u32 type>
struct Decoder;

DEVICE u32 u16_at(const u8* p);
DEVICE float f16_at(const u8* p);

// Offsets of the tables in the buffer, in units of eight bytes.
constexpr u32 kIq1Grid = 0;                       // 2048 words of 8 signed bytes
constexpr u32 kIq2XxsGrid = kIq1Grid + 2048;      // 256 words of 8 bytes
constexpr u32 kIq2XsGrid = kIq2XxsGrid + 256;     // 512
constexpr u32 kIq2SGrid = kIq2XsGrid + 512;       // 1024
constexpr u32 kIq3XxsGrid = kIq2SGrid + 1024;     // 256 words of 4 bytes
constexpr u32 kIq3SGrid = kIq3XxsGrid + 256 / 2;  // 512 words of 4 bytes

// Returns eight sign bits for seven: the eighth makes the number of minus signs even.
DEVICE u32 even_signs(u32 seven_bits) { return seven_bits | (__popc(seven_bits) & 1) << 7; }

DEVICE u32 nibble_of(const u8* bytes, u32 i) { return bytes[i / 2] >> (4 * (i % 2)) & 0xf; }

// w[i] = +- scale * byte i, negative if bit i of `signs` is set.
DEVICE void decode_codeword(u64 magnitudes, u32 signs, float scale, float* w) {
  for (u32 i = 0; i < 8; ++i) {
    const float magnitude = float(u32(magnitudes >> (8 * i)) & 0xff);
    w[i] = (signs >> i & 1) != 0 ? -scale * magnitude : scale * magnitude;
  }
}

// w[i] = scale * (value i +- 1/8).
DEVICE void decode_ternary(u64 values, bool down, float scale, float* w) {
  for (u32 i = 0; i < 8; ++i) {
    w[i] = scale * (float(i8(values >> (8 * i))) + (down ? -0.125f : 0.125f));
  }
}

DEVICE u64 two_words(const u64* table, u32 first, u32 second) {
  const u32* words = reinterpret_cast<const u32*>(table);
  return words[first] | u64(words[second]) << 32;
}

template <>
struct Decoder<16> {  // IQ2_XXS: d, 8 x (qs[4], scale and signs[4])
  static constexpr u32 kWeights = 256, kBytes = 66;
  static DEVICE_MEMBER void decode(const u8* block, u32 group, float* w, const u64* codebooks) {
    const u8* sub = block + 2 + 8 * group;
    const u32 packed = u16_at(sub + 4) | u16_at(sub + 6) << 16;
    const float scale = f16_at(block) * (0.5f + float(packed >> 28)) * 0.25f;
    for (u32 k = 0; k < 4; ++k) {
      decode_codeword(codebooks[kIq2XxsGrid + sub[k]], even_signs(packed >> (7 * k) & 0x7f), scale,
                      w + 8 * k);
    }
  }
};

template <>
struct Decoder<17> {  // IQ2_XS: d, qs[32] of 16 bits, scales[8]
  static constexpr u32 kWeights = 256, kBytes = 74;
  static DEVICE_MEMBER void decode(const u8* block, u32 group, float* w, const u64* codebooks) {
    for (u32 k = 0; k < 4; ++k) {
      const u32 q = u16_at(block + 2 + 8 * group + 2 * k);
      const u32 step = nibble_of(block + 66, 2 * group + k / 2);
      const float scale = f16_at(block) * (0.5f + float(step)) * 0.25f;
      decode_codeword(codebooks[kIq2XsGrid + (q & 0x1ff)], even_signs(q >> 9), scale, w + 8 * k);
    }
  }
};

template <>
struct Decoder<22> {  // IQ2_S: d, qs[32], signs[32], qh[8], scales[8]
  static constexpr u32 kWeights = 256, kBytes = 82;
  static DEVICE_MEMBER void decode(const u8* block, u32 group, float* w, const u64* codebooks) {
    for (u32 k = 0; k < 4; ++k) {
      const u32 at = 4 * group + k;
      const u32 index = block[2 + at] | (block[66 + group] >> (2 * k) & 3) << 8;
      const u32 step = nibble_of(block + 74, 2 * group + k / 2);
      const float scale = f16_at(block) * (0.5f + float(step)) * 0.25f;
      decode_codeword(codebooks[kIq2SGrid + index], block[34 + at], scale, w + 8 * k);
    }
  }
};

template <>
struct Decoder<18> {  // IQ3_XXS: d, qs[64], 8 x (scale and signs[4])
  static constexpr u32 kWeights = 256, kBytes = 98;
  static DEVICE_MEMBER void decode(const u8* block, u32 group, float* w, const u64* codebooks) {
    const u8* at = block + 66 + 4 * group;
    const u32 packed = u16_at(at) | u16_at(at + 2) << 16;
    const float scale = f16_at(block) * (0.5f + float(packed >> 28)) * 0.5f;
    for (u32 k = 0; k < 4; ++k) {
      const u8* q = block + 2 + 8 * group + 2 * k;
      decode_codeword(two_words(codebooks + kIq3XxsGrid, q[0], q[1]),
                      even_signs(packed >> (7 * k) & 0x7f), scale, w + 8 * k);
    }
  }
};

template <>
struct Decoder<21> {  // IQ3_S: d, qs[64], qh[8], signs[32], scales[4]
  static constexpr u32 kWeights = 256, kBytes = 110;
  static DEVICE_MEMBER void decode(const u8* block, u32 group, float* w, const u64* codebooks) {
    const float scale = f16_at(block) * float(1 + 2 * nibble_of(block + 106, group));
    const u32 high = block[66 + group];
    for (u32 k = 0; k < 4; ++k) {
      const u8* q = block + 2 + 8 * group + 2 * k;
      const u32 first = q[0] | (high >> (2 * k) & 1) << 8;
      const u32 second = q[1] | (high >> (2 * k + 1) & 1) << 8;
      decode_codeword(two_words(codebooks + kIq3SGrid, first, second), block[74 + 4 * group + k],
                      scale, w + 8 * k);
    }
  }
};

template <>
struct Decoder<19> {  // IQ1_S: d, qs[32], qh[8] of 16 bits
  static constexpr u32 kWeights = 256, kBytes = 50;
  static DEVICE_MEMBER void decode(const u8* block, u32 group, float* w, const u64* codebooks) {
    const u32 high = u16_at(block + 34 + 2 * group);
    const float scale = f16_at(block) * float(1 + 2 * (high >> 12 & 7));
    for (u32 k = 0; k < 4; ++k) {
      const u32 index = block[2 + 4 * group + k] | (high >> (3 * k) & 7) << 8;
      decode_ternary(codebooks[kIq1Grid + index], (high & 0x8000) != 0, scale, w + 8 * k);
    }
  }
};

template <>
struct Decoder<29> {  // IQ1_M: qs[32], qh[16], scales[4] of 16 bits, whose upper bits form d
  static constexpr u32 kWeights = 256, kBytes = 56;
  static DEVICE_MEMBER void decode(const u8* block, u32 group, float* w, const u64* codebooks) {
    const u8* scales = block + 48;
    u32 d_bits = 0;
    for (u32 n = 0; n < 4; ++n) d_bits |= u16_at(scales + 2 * n) >> 12 << (4 * n);
    const float d = to_float(f16{u16(d_bits)});
    for (u32 k = 0; k < 4; ++k) {
      const u32 at = 4 * group + k, s = at / 2;
      const u32 scale = u16_at(scales + s / 4 * 2) >> (3 * (s % 4)) & 7;
      const u32 high = nibble_of(block + 32, at);
      decode_ternary(codebooks[kIq1Grid + (block[at] | (high & 7) << 8)], (high & 8) != 0,
                     d * float(1 + 2 * scale), w + 8 * k);
    }
  }
};

#pragma once

// The weight formats with fast products, in the layout that products read: each lane reads chunks
// of 16 bytes of quants.
//
// A format F has
//   kCols             columns of a chunk, in units of eight
//   kUnit             rows are a whole number of kUnit weights
//   kRegisters        of a chunk
//   Chunk             a chunk as loaded: nothing is computed from it until it is used, so that
//                     loads stay in flight
//   load(row, cols, chunk, codebooks)   loads chunk number `chunk` of a row of `cols` weights
//   floats(c, p, w)                     the eight weights of unit p, exactly
//   words<T>(c, p)                      the same as four pairs of 16-bit floats
//
// On the device, a row consists of planes, one after another, each padded to 16 bytes: all quants,
// then all scales. File blocks have sizes such as 18, 34 and 210 bytes, which 16-byte loads cannot
// read; repack_rows.cu splits them. Block layouts: csrc/common/quant.
//
// Words of quants are arranged for arithmetic on two F16 at once: an integer in the low bits of the
// mantissa of 1024 is 1024 + integer, so that a mask, an exact subtraction and a multiplication
// give two weights. The multiplication by the scale rounds to F16; minima and K-quants' scales are
// rounded to F16 before. A word of eight 4-bit quants holds weights 0 2 4 6 1 3 5 7 from the low
// bits up: a shift by 4 i moves weights 2 i and 2 i + 1 to the low ends of the two halves.

#include "ptx.cuh"

// Number of whole chunks in a row of `cols` weights, and the remainder.
template <class F>
DEVICE u32 chunks_of(u32 cols) {
  return (cols + F::kCols - 1) / F::kCols;
}

DEVICE f16 constant_f16(const u8* p) { return {load_constant<u16>(p)}; }

// The nibble of a word that holds weight i of its eight.
DEVICE constexpr u32 nibble_place(u32 i) { return i / 2 + i % 2 * 4; }

// The words of eight weights from their floats.
template <class F, class T>
DEVICE uint4 packed_unit(const typename F::Chunk& c, u32 p) {
  float w[8];
  F::floats(c, p, w);
  return make_uint4(pack_as(T{}, w[0], w[1]), pack_as(T{}, w[2], w[3]), pack_as(T{}, w[4], w[5]),
                    pack_as(T{}, w[6], w[7]));
}

struct FormatF32 {
  static constexpr u32 kCols = 8, kUnit = 1, kRegisters = 8;
  struct Chunk {
    uint4 bits[2];
  };
  static DEVICE_MEMBER Chunk load(const u8* row, u32 cols, u32 chunk, const u64*) {
    const u8* from = row + u64(chunk) * 32;
    // Rows are padded to 16 bytes only.
    const bool whole = chunk * kCols + 4 < cols;
    return {load_streaming(from), whole ? load_streaming(from + 16) : make_uint4(0, 0, 0, 0)};
  }
  static DEVICE_MEMBER void floats(const Chunk& c, u32, float (&w)[8]) {
#pragma unroll
    for (u32 i = 0; i < 8; ++i) w[i] = __uint_as_float(word_of(c.bits[i / 4], i % 4));
  }
  template <class T>
  static DEVICE_MEMBER uint4 words(const Chunk& c, u32 p) {
    return packed_unit<FormatF32, T>(c, p);
  }
};

// F16 and BF16.
template <class Half>
struct FormatHalf {
  static constexpr u32 kCols = 8, kUnit = 1, kRegisters = 4;
  struct Chunk {
    uint4 bits;
  };
  static DEVICE_MEMBER Chunk load(const u8* row, u32, u32 chunk, const u64*) {
    return {load_streaming(row + u64(chunk) * 16)};
  }
  static DEVICE_MEMBER void floats(const Chunk& c, u32, float (&w)[8]) {
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      w[2 * i] = low_as(Half{}, word_of(c.bits, i));
      w[2 * i + 1] = high_as(Half{}, word_of(c.bits, i));
    }
  }
  template <class T>
  static DEVICE_MEMBER uint4 words(const Chunk& c, u32) {
    return make_uint4(in_own_register(c.bits.x), in_own_register(c.bits.y),
                      in_own_register(c.bits.z), in_own_register(c.bits.w));
  }
};
using FormatF16 = FormatHalf<f16>;
using FormatBF16 = FormatHalf<bf16>;

// qs[cols] signed bytes | d[cols / 32].
struct FormatQ8_0 {
  static constexpr u32 kCols = 16, kUnit = 32, kRegisters = 5;
  struct Chunk {
    uint4 bits;
    f16 d;
  };
  static DEVICE_MEMBER Chunk load(const u8* row, u32 cols, u32 chunk, const u64*) {
    return {load_streaming(row + u64(chunk) * 16), constant_f16(row + cols + chunk / 2 * 2)};
  }
  static DEVICE_MEMBER void floats(const Chunk& c, u32 p, float (&w)[8]) {
    const float d = to_float(c.d);
#pragma unroll
    for (u32 i = 0; i < 2; ++i) {
      const float4 v = bytes_to_floats(word_of(c.bits, 2 * p + i) ^ 0x80808080u, 128.0f);
      w[4 * i] = v.x * d;
      w[4 * i + 1] = v.y * d;
      w[4 * i + 2] = v.z * d;
      w[4 * i + 3] = v.w * d;
    }
  }
  template <class T>
  static DEVICE_MEMBER uint4 words(const Chunk& c, u32 p) {
    const u32 d = both_halves(c.d);
    const uint2 first = bytes_to_halves(word_of(c.bits, 2 * p) ^ 0x80808080u);
    const uint2 second = bytes_to_halves(word_of(c.bits, 2 * p + 1) ^ 0x80808080u);
    return make_uint4(multiply_halves(first.x, d), multiply_halves(first.y, d),
                      multiply_halves(second.x, d), multiply_halves(second.y, d));
  }
};

// qs[cols] in E4M3 | d[cols / 32] in F32.
struct FormatFP8 {
  static constexpr u32 kCols = 16, kUnit = 32, kRegisters = 5;
  struct Chunk {
    uint4 bits;
    float d;
  };
  static DEVICE_MEMBER Chunk load(const u8* row, u32 cols, u32 chunk, const u64*) {
    return {load_streaming(row + u64(chunk) * 16),
            load_constant<float>(row + cols + chunk / 2 * 4)};
  }
  // Two E4M3 numbers times 2^-8: with the sign bit moved to the top they are F16, including
  // subnormal numbers. 0x7f becomes 480; blocks with a NaN have a NaN scale
  // (csrc/common/quant/fp8.h).
  static DEVICE_MEMBER u32 pair(u32 bytes, u32 selector) {
    const u32 spread = __byte_perm(bytes, 0, selector);
    return (spread & 0x80008000u) | (spread >> 1 & 0x3f803f80u);
  }
  static DEVICE_MEMBER uint4 scaled_down(const Chunk& c, u32 p) {
    const u32 first = word_of(c.bits, 2 * p), second = word_of(c.bits, 2 * p + 1);
    return make_uint4(pair(first, 0x1404), pair(first, 0x3424), pair(second, 0x1404),
                      pair(second, 0x3424));
  }
  static DEVICE_MEMBER void floats(const Chunk& c, u32 p, float (&w)[8]) {
    const uint4 v = scaled_down(c, p);
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
      w[2 * i] = low_as(f16{}, word_of(v, i)) * (c.d * 256.0f);
      w[2 * i + 1] = high_as(f16{}, word_of(v, i)) * (c.d * 256.0f);
    }
  }
  template <class T>
  static DEVICE_MEMBER uint4 words(const Chunk& c, u32 p) {
    const uint4 v = scaled_down(c, p);
    const u32 d = both_halves(to_f16(c.d * 256.0f));
    return make_uint4(multiply_halves(v.x, d), multiply_halves(v.y, d), multiply_halves(v.z, d),
                      multiply_halves(v.w, d));
  }
};

// Four pairs of F16 from eight 4-bit quants, exactly: q - bias.
template <u32 bias>
DEVICE uint4 nibbles_to_halves(u32 word) {
  // 1024 + q, and 1024 + 16 q, which takes no shift; 1024 + bias, -(64 + bias).
  constexpr u32 kLow = (0x6400u + bias) * 0x10001u, kHigh = (0xd400u + 16 * bias) * 0x10001u;
  constexpr u32 kSixteenth = 0x2c002c00u;
  const u32 later = word >> 8;
  return make_uint4(
      subtract_halves(and_or(word, 0x000f000fu, 0x64006400u), kLow),
      fma_halves(and_or(word, 0x00f000f0u, 0x64006400u), kSixteenth, kHigh),
      subtract_halves(and_or(later, 0x000f000fu, 0x64006400u), kLow),
      fma_halves(and_or(later, 0x00f000f0u, 0x64006400u), kSixteenth, kHigh));
}

// qs[cols / 2] | d[cols / 32].
struct FormatQ4_0 {
  static constexpr u32 kCols = 32, kUnit = 32, kRegisters = 5;
  struct Chunk {
    uint4 bits;
    f16 d;
  };
  static DEVICE_MEMBER Chunk load(const u8* row, u32 cols, u32 chunk, const u64*) {
    return {load_streaming(row + u64(chunk) * 16), constant_f16(row + cols / 2 + chunk * 2)};
  }
  static DEVICE_MEMBER void floats(const Chunk& c, u32 p, float (&w)[8]) {
    const u32 word = word_of(c.bits, p);
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
      w[i] = float(i32(word >> (4 * nibble_place(i)) & 0xf) - 8) * to_float(c.d);
    }
  }
  template <class T>
  static DEVICE_MEMBER uint4 words(const Chunk& c, u32 p) {
    const uint4 q = nibbles_to_halves<8>(word_of(c.bits, p));
    const u32 d = both_halves(c.d);
    return make_uint4(multiply_halves(q.x, d), multiply_halves(q.y, d), multiply_halves(q.z, d),
                      multiply_halves(q.w, d));
  }
};

// Blocks of nine 16-byte words for 256 weights. Word 1 + c holds the quants of chunk c, which is
// sub-block c. The first word is the head: d and -dmin; the low four bits of scales and minima of
// sub-blocks 0 to 3, those of sub-blocks 4 to 7, and the upper two bits of all eight. Of the last
// three, the low half has the scales and the high half the minima, the first sub-block in the
// lowest bits.
struct FormatQ4_K {
  static constexpr u32 kCols = 32, kUnit = 256, kRegisters = 9;
  struct Chunk {
    uint4 bits;
    uint4 head;
    u32 sub;
  };
  static DEVICE_MEMBER Chunk load(const u8* row, u32, u32 chunk, const u64*) {
    const u8* block = row + u64(chunk / 8) * 144;
    return {load_streaming(block + 16 + chunk % 8 * 16), load_constant<uint4>(block), chunk % 8};
  }
  // The 6-bit scale in the low half, the minimum in the high half.
  static DEVICE_MEMBER u32 scale_and_min(const Chunk& c, u32 zero) {
    const u32 low = (c.sub < 4 ? c.head.y : c.head.z) >> (4 * (c.sub % 4));
    return and_or(low, 0x000f000fu, zero) + (c.head.w >> (2 * c.sub) & 0x00030003u) * 16;
  }
  static DEVICE_MEMBER void floats(const Chunk& c, u32 p, float (&w)[8]) {
    const u32 both = scale_and_min(c, 0);
    const float scale = low_as(f16{}, c.head.x) * float(both & 63);
    const float min = high_as(f16{}, c.head.x) * float(both >> 16);
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
      w[i] = float(word_of(c.bits, p) >> (4 * nibble_place(i)) & 0xf) * scale + min;
    }
  }
  template <class T>
  static DEVICE_MEMBER uint4 words(const Chunk& c, u32 p) {
    const u32 integers = subtract_halves(scale_and_min(c, 0x64006400u), 0x64006400u);
    const u32 both = multiply_halves(integers, c.head.x);
    const u32 scale = __byte_perm(both, 0, 0x1010), min = __byte_perm(both, 0, 0x3232);
    const uint4 q = nibbles_to_halves<0>(word_of(c.bits, p));
    return make_uint4(fma_halves(q.x, scale, min), fma_halves(q.y, scale, min),
                      fma_halves(q.z, scale, min), fma_halves(q.w, scale, min));
  }
};

// For each 32 weights: the low four bits of q in 16 bytes, and the upper two bits in two words, of
// two units each. Weight 2 i of the n-th unit of a word has its bits at top_place(n, i), where few
// shifts put them next to its low bits, and weight 2 i + 1 in the upper half of the word.
// ql[cols / 2] | qh[cols / 4] | scales[cols / 16] signed bytes | d[cols / 256].
struct FormatQ6_K {
  static constexpr u32 kCols = 32, kUnit = 256, kRegisters = 8;
  struct Chunk {
    uint4 low;
    uint2 high;
    u16 scales;
    f16 d;
  };
  static DEVICE_MEMBER Chunk load(const u8* row, u32 cols, u32 chunk, const u64*) {
    const u8* high = row + cols / 2;
    const u8* scales = high + cols / 4;
    return {load_streaming(row + u64(chunk) * 16), load_constant<uint2>(high + u64(chunk) * 8),
            load_constant<u16>(scales + chunk * 2),
            constant_f16(scales + cols / 16 + chunk / 8 * 2)};
  }
  static DEVICE_MEMBER float scale(const Chunk& c, u32 p) {
    return to_float(c.d) * float(i8(c.scales >> (p / 2 * 8)));
  }
  static DEVICE_MEMBER u32 high_word(const Chunk& c, u32 p) { return p < 2 ? c.high.x : c.high.y; }
  static DEVICE_MEMBER void floats(const Chunk& c, u32 p, float (&w)[8]) {
    const u32 low = word_of(c.low, p), high = high_word(c, p);
    const float s = scale(c, p);
#pragma unroll
    for (u32 i = 0; i < 8; ++i) {
      const u32 top = high >> (top_place(p % 2, i / 2) + i % 2 * 16) & 3;
      w[i] = float(i32((low >> (4 * nibble_place(i)) & 0xf) | top << 4) - 32) * s;
    }
  }
  // For unit 0: 4 and 8, which is next to the low bits of pairs 0 and 1, and two places above. For
  // unit 1 eight places away, where the word has room.
  static constexpr DEVICE_MEMBER u32 top_place(u32 unit, u32 i) {
    const u32 wanted = i % 2 == 0 ? 4 : 8;
    return (unit == 0 ? wanted : i % 2 == 0 ? wanted + 8 : wanted - 8) + i / 2 * 2;
  }
  // Weights 2 i and 2 i + 1 of unit p: pairs 0 and 2 as 1024 + q, the others as 1024 + 16 q.
  static DEVICE_MEMBER u32 pair(u32 low, u32 high, u32 p, u32 i, u32 scale) {
    const u32 wanted = i % 2 == 0 ? 4 : 8, at = top_place(p % 2, i);
    const u32 top = at < wanted ? high << (wanted - at) : high >> (at - wanted);
    if (i % 2 == 0) {
      const u32 q = and_or(top, 0x00300030u, and_or(low, 0x000f000fu, 0x64006400u));
      return multiply_halves(subtract_halves(q, 0x64206420u), scale);  // - 1056
    }
    const u32 q = and_or(top, 0x03000300u, and_or(low, 0x00f000f0u, 0x64006400u));
    return multiply_halves(fma_halves(q, 0x2c002c00u, 0xd600d600u), scale);  // / 16 - 96
  }
  template <class T>
  static DEVICE_MEMBER uint4 words(const Chunk& c, u32 p) {
    const u32 low = word_of(c.low, p), later = low >> 8, high = high_word(c, p);
    const u32 s = both_halves(to_f16(scale(c, p)));
    return make_uint4(pair(low, high, p, 0, s), pair(low, high, p, 1, s),
                      pair(later, high, p, 2, s), pair(later, high, p, 3, s));
  }
};

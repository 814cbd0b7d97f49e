#pragma once

// The weight formats with fast products, read in the layout of the file, so that a mapped file is
// the only memory that a model's weights take.
//
// A format F has
//   kRun, kRuns       a lane's chunk holds kRuns runs of kRun consecutive weights
//   kHasMin           weight = scale * q - min, else weight = scale * q
//   kScaled           true if the format has scales
//   kUnit             rows are a whole number of kUnit weights
//   Chunk             a chunk in registers
//   load<whole>(row, cols, chunk, codebooks)   reads chunk number `chunk` of a row of `cols`
//                     weights; unless rows are `whole` chunks, weights from `cols` on are zeros
//   run_start(chunk, r)                 the column of the first weight of run r
//   four(c, r, j)     weights 4 j .. 4 j + 3 of run r, before scaling: small exact numbers, a power
//                     of 2 too large where their bits are not shifted down
//   scale(c, r), min(c, r)
//
// Neighbouring lanes read neighbouring chunks of 8 to 16 bytes. Blocks of 18, 34 and 210 bytes
// only allow two-byte loads, which fall into the same few cache lines for all lanes. This costs
// less than a second, rearranged copy of the weights. Block layouts: csrc/common/quant.

#include "prelude.h"

// An order of rows in which the first `apart` rows of each block alternate with the rows `apart`
// further on, so that a SIMD group computes both: a gate and what it gates, or two numbers that
// rotate together.
struct RowPairs {
  uint apart;  // 0: the order of the file
  uint block;  // 0: all rows are one block
  uint end;    // rows from here on are in the order of the file
};
inline uint stored_row(RowPairs pairs, uint i) {
  if (i >= pairs.end) return i;
  const uint j = pairs.block == 0 ? i : i % pairs.block;
  return j < 2 * pairs.apart ? i - j + j / 2 + j % 2 * pairs.apart : i;
}

// The rows of a weight that a grid multiplies. A weight may consist of up to three pieces in
// memory.
struct WeightRows {
  device const u8* pieces[3];
  uint begins[2];  // the first row of the second and of the third piece; `count` if missing
  ulong stride;
  uint count;
  uint cols;
  RowPairs pairs;

  device const u8* row(uint i) const {
    const uint r = stored_row(pairs, i);
    if (r < begins[0]) return pieces[0] + ulong(r) * stride;
    if (r < begins[1]) return pieces[1] + ulong(r - begins[0]) * stride;
    return pieces[2] + ulong(r - begins[1]) * stride;
  }
};
inline WeightRows weight_rows(device const u8* weight, device const u8* second,
                              device const u8* third, constant MatvecArgs& args, RowPairs pairs) {
  return {{weight, second, third}, {args.second_row, args.third_row}, args.row_stride, args.rows,
          args.cols, pairs};
}
inline WeightRows weight_rows(device const u8* weight, device const u8* second,
                              device const u8* third, constant MatvecArgs& args) {
  const uint opened = args.epilogue.opened;
  return weight_rows(weight, second, third, args, {opened, 0, 2 * opened});
}
// Rows in one piece.
inline WeightRows weight_rows(device const u8* weight, ulong stride, uint count, uint cols) {
  return {{weight, weight, weight}, {count, count}, stride, count, cols, {0, 0, 0}};
}

// Number of whole chunks in a row of `cols` weights, and the remainder.
template <class F>
inline uint chunks_of(uint cols) {
  return (cols + F::kRun * F::kRuns - 1) / (F::kRun * F::kRuns);
}

inline float half_at(device const u8* p) { return float(*(device const half*)p); }
// Four bytes at an even address.
inline uint word_at(device const u8* p) {
  device const ushort* halves = (device const ushort*)p;
  return as_type<uint>(ushort2(halves[0], halves[1]));
}

// F32, F16 and BF16: Four is four numbers in memory order.
struct FloatsF32 {
  CONSTANT uint kBytes = 4;
  typedef float4 Four;
  static float4 load_four(device const u8* p) {
    device const float2* pairs = (device const float2*)p;
    return float4(pairs[0].x, pairs[0].y, pairs[1].x, pairs[1].y);
  }
  static float load_one(device const u8* p) { return *(device const float*)p; }
  static float4 value(float4 four) { return four; }
};
struct FloatsF16 {
  CONSTANT uint kBytes = 2;
  typedef half4 Four;
  static half4 load_four(device const u8* p) { return *(device const half4*)p; }
  static half load_one(device const u8* p) { return *(device const half*)p; }
  static float4 value(half4 four) { return float4(four); }
};
struct FloatsBF16 {
  CONSTANT uint kBytes = 2;
  typedef ushort4 Four;
  static ushort4 load_four(device const u8* p) { return *(device const ushort4*)p; }
  static ushort load_one(device const u8* p) { return *(device const ushort*)p; }
  static float4 value(ushort4 four) { return as_type<float4>(uint4(four) << 16); }
};

template <class T>
struct FormatFloats {
  CONSTANT uint kRun = 4, kRuns = 1, kUnit = 1;
  CONSTANT bool kHasMin = false, kScaled = false;
  struct Chunk {
    typename T::Four bits;
  };
  template <bool whole>
  static Chunk load(device const u8* row, uint cols, uint chunk, device const ulong*) {
    device const u8* from = row + ulong(chunk) * 4 * T::kBytes;
    Chunk c;
    if (whole) {
      c.bits = T::load_four(from);
    } else {
      for (uint i = 0; i < 4; ++i) {
        c.bits[i] = 0;
        if (chunk * 4 + i < cols) c.bits[i] = T::load_one(from + i * T::kBytes);
      }
    }
    return c;
  }
  static uint run_start(uint chunk, uint) { return chunk * 4; }
  static float4 four(thread const Chunk& c, uint, uint) { return T::value(c.bits); }
  static float scale(thread const Chunk&, uint) { return 1.0f; }
  static float min(thread const Chunk&, uint) { return 0.0f; }
};
typedef FormatFloats<FloatsF32> FormatF32;
typedef FormatFloats<FloatsF16> FormatF16;
typedef FormatFloats<FloatsBF16> FormatBF16;

// Eight bytes of a block that begins with its scale d, and the scale.
struct ScaledBytes {
  uint2 bits;
  float d;
};
inline ScaledBytes scaled_bytes(device const u8* block, uint part) {
  device const u8* from = block + 2 + part * 8;
  return {uint2(word_at(from), word_at(from + 4)), half_at(block)};
}

// d, then 32 signed bytes. A chunk is a quarter of them.
struct FormatQ8_0 {
  CONSTANT uint kRun = 8, kRuns = 1, kUnit = 32;
  CONSTANT bool kHasMin = false, kScaled = true;
  typedef ScaledBytes Chunk;
  template <bool whole>
  static Chunk load(device const u8* row, uint, uint chunk, device const ulong*) {
    return scaled_bytes(row + ulong(chunk / 4) * 34, chunk % 4);
  }
  static uint run_start(uint chunk, uint) { return chunk * kRun; }
  static float4 four(thread const Chunk& c, uint, uint j) { return signed_bytes(c.bits[j]); }
  static float scale(thread const Chunk& c, uint) { return c.d; }
  static float min(thread const Chunk&, uint) { return 0.0f; }
};

// Four E4M3 numbers times 2^-8: with the sign bit moved to the top they are F16, including
// subnormal numbers. 0x7f becomes 480; blocks with a NaN have a NaN scale
// (csrc/common/quant/fp8.h).
inline float4 e4m3_bytes(uint word) {
  const float2 even = float2(as_type<half2>((word << 8 & 0x80008000) | (word << 7 & 0x3f803f80)));
  const float2 odd = float2(as_type<half2>((word & 0x80008000) | (word >> 1 & 0x3f803f80)));
  return float4(even.x, odd.x, even.y, odd.y);
}

// d in F32, then 32 numbers of E4M3. A chunk is a quarter of them.
struct FormatFP8 {
  CONSTANT uint kRun = 8, kRuns = 1, kUnit = 32;
  CONSTANT bool kHasMin = false, kScaled = true;
  typedef ScaledBytes Chunk;
  template <bool whole>
  static Chunk load(device const u8* row, uint, uint chunk, device const ulong*) {
    device const u8* block = row + ulong(chunk / 4) * 36;
    device const uint* from = (device const uint*)(block + 4 + chunk % 4 * 8);
    return {uint2(from[0], from[1]), *(device const float*)block * 256.0f};
  }
  static uint run_start(uint chunk, uint) { return chunk * kRun; }
  static float4 four(thread const Chunk& c, uint, uint j) { return e4m3_bytes(c.bits[j]); }
  static float scale(thread const Chunk& c, uint) { return c.d; }
  static float min(thread const Chunk&, uint) { return 0.0f; }
};

// d, then 16 bytes: byte i = weight i | weight i + 16 << 4. A chunk is half of them.
struct FormatQ4_0 {
  CONSTANT uint kRun = 8, kRuns = 2, kUnit = 32;
  CONSTANT bool kHasMin = false, kScaled = true;
  typedef ScaledBytes Chunk;
  template <bool whole>
  static Chunk load(device const u8* row, uint, uint chunk, device const ulong*) {
    return scaled_bytes(row + ulong(chunk / 2) * 18, chunk % 2);
  }
  static uint run_start(uint chunk, uint r) { return chunk / 2 * 32 + r * 16 + chunk % 2 * 8; }
  static float4 four(thread const Chunk& c, uint r, uint j) {
    return r == 0 ? bytes_of(c.bits[j], 0x000f000fu, 1032.0f)
                  : bytes_of(c.bits[j], 0x00f000f0u, 1152.0f);  // times 16
  }
  static float scale(thread const Chunk& c, uint r) { return r == 0 ? c.d : c.d * 0.0625f; }
  static float min(thread const Chunk&, uint) { return 0.0f; }
};

// 144 bytes: d, dmin, 12 bytes of 6-bit scales and minima, and 128 bytes of weights. Chunk c is 16
// of these: 16 weights of sub-block 2 (c / 2) in the low four bits, 16 of the next sub-block in the
// high four bits. Eight neighbouring lanes share a block.
struct FormatQ4_K {
  CONSTANT uint kRun = 16, kRuns = 2, kUnit = 256;
  CONSTANT bool kHasMin = true, kScaled = true;
  struct Chunk {
    uint4 bits;
    float2 scales;
    float2 mins;
  };
  template <bool whole>
  static Chunk load(device const u8* row, uint, uint chunk, device const ulong*) {
    device const u8* block = row + ulong(chunk / 8) * 144;
    device const uint2* head = (device const uint2*)block;
    device const uint2* from = (device const uint2*)(block + 16 + chunk % 8 * 16);
    Chunk c;
    c.bits = uint4(from[0].x, from[0].y, from[1].x, from[1].y);
    const uint2 first = head[0], second = head[1];
    const float2 d = float2(as_type<half2>(first.x));
    const uint pair = chunk % 8 / 2;  // of sub-blocks
    for (uint r = 0; r < 2; ++r) {
      const uint shift = 8 * ((2 * pair + r) % 4);
      const uint y = first.y >> shift, z = second.x >> shift, w = second.y >> shift;
      const uint scale = pair < 2 ? y & 63 : (w & 0xf) | (y >> 6 & 3) << 4;
      const uint least = pair < 2 ? z & 63 : (w >> 4 & 0xf) | (z >> 6 & 3) << 4;
      c.scales[r] = d.x * float(scale);
      c.mins[r] = d.y * float(least);
    }
    return c;
  }
  static uint run_start(uint chunk, uint r) {
    return chunk / 8 * 256 + chunk % 8 / 2 * 64 + r * 32 + chunk % 2 * 16;
  }
  static float4 four(thread const Chunk& c, uint r, uint j) {
    return bytes_of(c.bits[j], r == 0 ? 0x000f000fu : 0x00f000f0u, 1024.0f);
  }
  static float scale(thread const Chunk& c, uint r) {
    return r == 0 ? c.scales[0] : c.scales[1] * 0.0625f;  // the second run is times 16
  }
  static float min(thread const Chunk& c, uint r) { return c.mins[r]; }
};

// 210 bytes: ql[128], qh[64], scales[16], d. A chunk is four weights of each quarter of one half of
// the block: their low four bits share bytes of ql, their high two bits bytes of qh.
struct FormatQ6_K {
  CONSTANT uint kRun = 4, kRuns = 4, kUnit = 256;
  CONSTANT bool kHasMin = false, kScaled = true;
  struct Chunk {
    uint2 low;
    uint high;
    float4 scales;
  };
  template <bool whole>
  static Chunk load(device const u8* row, uint, uint chunk, device const ulong*) {
    device const u8* block = row + ulong(chunk / 16) * 210;
    const uint half_block = chunk % 16 / 8, first = chunk % 8 * 4;
    device const u8* low = block + 64 * half_block + first;
    device const u8* scales = block + 192 + 8 * half_block + first / 16;
    const float d = half_at(block + 208);
    Chunk c;
    c.low = uint2(word_at(low), word_at(low + 32));
    c.high = word_at(block + 128 + 32 * half_block + first);
    for (uint r = 0; r < 4; ++r) c.scales[r] = d * float(i8(scales[2 * r]));
    return c;
  }
  static uint run_start(uint chunk, uint r) {
    return chunk / 8 * 128 + r * 32 + chunk % 8 * 4;
  }
  // Runs 2 and 3 take the upper four bits where they are, so they are times 16.
  static half2 pair(thread const Chunk& c, uint r, bool odd) {
    const uint low = odd ? c.low[r % 2] >> 8 : c.low[r % 2];
    const uint high = (odd ? c.high >> 8 : c.high) & 0x00ff00ffu;
    const uint placed = r % 2 == 0 ? high << 4 : high << 2;
    return r < 2 ? small_integers((low & 0x000f000fu) | (placed & 0x00300030u), 1056.0f)
                 : small_integers((low & 0x00f000f0u) | (placed & 0x03000300u), 1536.0f);
  }
  static float4 four(thread const Chunk& c, uint r, uint) {
    const half2 even = pair(c, r, false), odd = pair(c, r, true);
    return float4(float(even.x), float(odd.x), float(even.y), float(odd.y));
  }
  static float scale(thread const Chunk& c, uint r) {
    return r < 2 ? c.scales[r] : c.scales[r] * 0.0625f;
  }
  static float min(thread const Chunk&, uint) { return 0.0f; }
};

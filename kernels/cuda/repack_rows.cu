// Splits the blocks of a file into the planes that products read, and reorders their weights
// (formats.cuh), while weights are loaded.
//
//   grid: (n_blocks / 8, rows); block 256: a warp per block
//   moves: every byte once in, once out; runs after the copy over PCIe

#include "formats.cuh"

template <class F>
struct RawBlock;

// Byte `at` of the words that hold the low four bits of weights 0, 1, ... (formats.cuh).
template <class Quant>
DEVICE u8 byte_of_nibbles(u32 at, Quant quant) {
  const u32 first = at / 4 * 8 + at % 2 * 4 + at % 4 / 2;
  return u8((quant(first) & 0xf) | (quant(first + 2) & 0xf) << 4);
}

// d, then 32 signed bytes.
template <>
struct RawBlock<FormatQ8_0> {
  static constexpr u32 kBytes = 34;
  static DEVICE_MEMBER void repack(u8* row, const u8* block, u32 b, u32 nb, u32 lane) {
    row[b * 32 + lane] = block[2 + lane];
    if (lane < 2) row[nb * 32 + b * 2 + lane] = block[lane];
  }
};

// d in F32, then 32 numbers of E4M3.
template <>
struct RawBlock<FormatFP8> {
  static constexpr u32 kBytes = 36;
  static DEVICE_MEMBER void repack(u8* row, const u8* block, u32 b, u32 nb, u32 lane) {
    row[b * 32 + lane] = block[4 + lane];
    if (lane < 4) row[nb * 32 + b * 4 + lane] = block[lane];
  }
};

// d, then 16 bytes of nibbles.
template <>
struct RawBlock<FormatQ4_0> {
  static constexpr u32 kBytes = 18;
  static DEVICE_MEMBER void repack(u8* row, const u8* block, u32 b, u32 nb, u32 lane) {
    const auto quant = [&](u32 i) { return u32(block[2 + i % 16] >> (i / 16 * 4)); };
    if (lane < 16) row[b * 16 + lane] = byte_of_nibbles(lane, quant);
    if (lane < 2) row[nb * 16 + b * 2 + lane] = block[lane];
  }
};

// ql[128], qh[64], scales[16], d.
template <>
struct RawBlock<FormatQ6_K> {
  static constexpr u32 kBytes = 210;
  // q of weight i of the block, in the file's layout (csrc/common/quant/k_quants.h).
  static DEVICE_MEMBER u32 quant(const u8* block, u32 i) {
    const u32 half = i / 128, within = i % 128;
    const u32 low = block[64 * half + within % 64] >> (within / 64 * 4) & 0xf;
    const u32 high = block[128 + 32 * half + within % 32] >> (within / 32 * 2) & 3;
    return low | high << 4;
  }
  static DEVICE_MEMBER void repack(u8* row, const u8* block, u32 b, u32 nb, u32 lane) {
    const auto own = [&](u32 i) { return quant(block, i); };
    for (u32 i = lane; i < 128; i += 32) row[b * 128 + i] = byte_of_nibbles(i, own);
    u8* high = row + nb * 128;
    if (lane < 16) {
      u32 bits = 0;  // of 16 weights
      for (u32 i = 0; i < 16; ++i) {
        const u32 at = FormatQ6_K::top_place(i / 8, i % 8 / 2) + i % 2 * 16;
        bits |= quant(block, lane * 16 + i) >> 4 << at;
      }
      for (u32 k = 0; k < 4; ++k) high[b * 64 + lane * 4 + k] = u8(bits >> (8 * k));
    }
    u8* scales = high + nb * 64;
    if (lane < 16) scales[b * 16 + lane] = block[192 + lane];
    if (lane < 2) scales[nb * 16 + b * 2 + lane] = block[208 + lane];
  }
};

// d, dmin, scales[12], then 32 bytes for each two sub-blocks, which have their low and high four
// bits.
template <>
struct RawBlock<FormatQ4_K> {
  static constexpr u32 kBytes = 144;
  static DEVICE_MEMBER void repack(u8* row, const u8* block, u32 b, u32, u32 lane) {
    u8* to = row + u64(b) * kBytes;
    const u8* packed = block + 4;
    const auto scale_or_min = [&](u32 s, bool is_min) {
      const u8 own = packed[s + (s < 4 && !is_min ? 0 : 4)];
      if (s < 4) return u32(own & 63);
      return u32(is_min ? own >> 4 | packed[s] >> 6 << 4 : (own & 15) | packed[s - 4] >> 6 << 4);
    };
    if (lane < 4) to[lane] = lane == 3 ? block[lane] ^ 0x80 : block[lane];
    if (lane < 12) {
      // Word lane / 4, byte lane % 4: two sub-blocks of four bits, or four of two bits.
      const bool is_min = lane % 4 >= 2;
      u32 bits = 0;
      if (lane < 8) {
        const u32 first = lane / 4 * 4 + lane % 2 * 2;
        bits = (scale_or_min(first, is_min) & 15) | (scale_or_min(first + 1, is_min) & 15) << 4;
      } else {
        for (u32 k = 0; k < 4; ++k) bits |= scale_or_min(lane % 2 * 4 + k, is_min) >> 4 << (2 * k);
      }
      to[4 + lane] = u8(bits);
    }
    const auto quant = [&](u32 i) {
      return u32(block[16 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4));
    };
    for (u32 i = lane; i < 128; i += 32) to[16 + i] = byte_of_nibbles(i, quant);
  }
};

template <class F>
KERNEL repack_rows(RepackRows a) {
  wait_for_previous_kernel();
  const u32 b = blockIdx.x * (blockDim.x / kWarp) + threadIdx.x / kWarp, row = blockIdx.y;
  if (b >= a.n_blocks || row >= a.rows) return;
  const u8* block = a.raw + row * a.raw_row_bytes + u64(b) * RawBlock<F>::kBytes;
  RawBlock<F>::repack(a.out + row * a.out_row_bytes, block, b, a.n_blocks, threadIdx.x % kWarp);
}

INSTANCE(repack_rows<FormatQ8_0>)
INSTANCE(repack_rows<FormatFP8>)
INSTANCE(repack_rows<FormatQ4_0>)
INSTANCE(repack_rows<FormatQ4_K>)
INSTANCE(repack_rows<FormatQ6_K>)

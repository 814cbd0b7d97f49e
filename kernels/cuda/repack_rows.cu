// Splits the blocks of a file into the planes that products read, and swizzles their weights
// (formats.cuh), while weights are loaded.
//
//   raw: rows of nb blocks, raw_row_bytes apart; out: rows out_row_stride apart
//   grid: (nb / 8, rows); block 256: a warp per block
//   moves: every byte once in, once out; runs after the copy over PCIe

#include "formats.cuh"

template <class F>
struct RawBlock;

// d, then 32 signed bytes.
template <>
struct RawBlock<FormatQ8_0> {
  static constexpr u32 kBytes = 34;
  static DEVICE_MEMBER void repack(u8* row, const u8* block, u32 b, u32 nb, u32 lane) {
    row[b * 32 + lane] = block[2 + (lane ^ swizzle_16(b))];
    if (lane < 2) row[nb * 32 + b * 2 + lane] = block[lane];
  }
};

// d in F32, then 32 numbers of E4M3.
template <>
struct RawBlock<FormatFP8> {
  static constexpr u32 kBytes = 36;
  static DEVICE_MEMBER void repack(u8* row, const u8* block, u32 b, u32 nb, u32 lane) {
    row[b * 32 + lane] = block[4 + (lane ^ swizzle_16(b))];
    if (lane < 4) row[nb * 32 + b * 4 + lane] = block[lane];
  }
};

// d, then 16 bytes of nibbles.
template <>
struct RawBlock<FormatQ4_0> {
  static constexpr u32 kBytes = 18;
  static DEVICE_MEMBER void repack(u8* row, const u8* block, u32 b, u32 nb, u32 lane) {
    if (lane < 16) {
      const u32 q = block[2 + (lane ^ swizzle_16(b))];
      row[b * 16 + lane] = u8(b / 4 % 2 == 0 ? q : q >> 4 | q << 4);
    }
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
    for (u32 i = lane; i < 128; i += 32) {
      const u32 first = i / 16 * 32 + (i % 16 ^ swizzle_32(i / 16)), second = first ^ 16;
      row[b * 128 + i] = u8((quant(block, first) & 0xf) | (quant(block, second) & 0xf) << 4);
    }
    u8* high = row + nb * 128;
    for (u32 i = lane; i < 64; i += 32) {
      const u32 first = i / 8 * 32 + (i % 8 ^ swizzle_32(i / 8));
      u32 bits = 0;
      for (u32 k = 0; k < 4; ++k) bits |= quant(block, first ^ 8 * k) >> 4 << (2 * k);
      high[b * 64 + i] = u8(bits);
    }
    u8* scales = high + nb * 64;
    // In the later half of a block's chunks, the runs are swapped.
    if (lane < 16) scales[b * 16 + lane] = block[192 + (lane ^ lane / 8)];
    if (lane < 2) scales[nb * 16 + b * 2 + lane] = block[208 + lane];
  }
};

// d, dmin, scales[12], then eight chunks of 16 bytes, where two chunks belong to the same
// sub-blocks.
template <>
struct RawBlock<FormatQ4_K> {
  static constexpr u32 kBytes = 144;
  static DEVICE_MEMBER void repack(u8* row, const u8* block, u32 b, u32, u32 lane) {
    u8* to = row + u64(b) * kBytes;
    if (lane < 16) to[lane] = block[lane];
    for (u32 i = lane; i < 128; i += 32) to[16 + i] = block[16 + (i ^ swizzle_16(i / 32))];
  }
};

template <class F>
KERNEL repack_rows(u8* out, const u8* raw, u32 rows, u32 nb, u64 raw_row_bytes,
                   u64 out_row_stride) {
  wait_for_previous_kernel();
  const u32 b = blockIdx.x * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (b >= nb || blockIdx.y >= rows) return;
  const u8* block = raw + blockIdx.y * raw_row_bytes + u64(b) * RawBlock<F>::kBytes;
  RawBlock<F>::repack(out + blockIdx.y * out_row_stride, block, b, nb, threadIdx.x % kWarp);
}

INSTANCE(repack_rows<FormatQ8_0>)
INSTANCE(repack_rows<FormatFP8>)
INSTANCE(repack_rows<FormatQ4_0>)
INSTANCE(repack_rows<FormatQ4_K>)
INSTANCE(repack_rows<FormatQ6_K>)

// Rows of a weight as 16-bit or 32-bit floats: for products by a library (cuBLASLt), and for
// formats without a product kernel.
//
//   out [rows, padded_cols] of T, zero beyond cols
//   grid: (padded_cols / 4096, rows); block 128
//   moves: the weight once, 2 or 4 bytes per weight out
//
// A thread unpacks eight weights, so that neighbouring threads store neighbouring 16 bytes; the
// threads of a chunk all load it. File blocks (blocks.cuh), which are costly to decode, are decoded
// by one thread.

#include "blocks.cuh"

template <class F, class T>
DEVICE void store_unit(T* out, const typename F::Chunk& c, u32 p) {
  if constexpr (sizeof(T) == 2) {
    *reinterpret_cast<uint4*>(out) = F::template words<T>(c, p);
  } else {
    float w[8];
    F::floats(c, p, w);
    float4* to = reinterpret_cast<float4*>(out);
    to[0] = make_float4(w[0], w[1], w[2], w[3]);
    to[1] = make_float4(w[4], w[5], w[6], w[7]);
  }
}

template <class F, class T>
__global__ void __launch_bounds__(128, 4)
    dequantize(Dequantize a) {
  wait_for_previous_kernel();
  constexpr u32 kUnits = F::kCols / 8, kOwn = kDecodedByLoad<F> ? kUnits : 1;
  const u32 row = blockIdx.y, cols = a.weight.cols;
  if (row >= a.weight.rows) return;
  T* to = static_cast<T*>(a.out) + u64(row) * a.padded_cols;
  const u8* from = a.weight.data + u64(row) * a.weight.row_stride;
  const u32 n_units = chunks_of<F>(cols) * kUnits;
  const u32 end = min(a.padded_cols / 8, (blockIdx.x + 1) * 512);
  for (u32 unit = blockIdx.x * 512 + threadIdx.x * kOwn; unit < end; unit += blockDim.x * kOwn) {
    typename F::Chunk c = {};
    if (unit < n_units) c = F::load(from, cols, unit / kUnits, a.weight.codebooks);
#pragma unroll
    for (u32 i = 0; i < kOwn; ++i) {
      // A chunk may extend beyond the last column, but rows are padded with zeros.
      if (unit + i < end) store_unit<F>(to + (unit + i) * 8, c, kOwn == 1 ? unit % kUnits : i);
    }
  }
}

INSTANCE(dequantize<FormatF32, float>)
INSTANCE(dequantize<FormatF16, f16>)
INSTANCE(dequantize<FormatF16, float>)
INSTANCE(dequantize<FormatBF16, bf16>)
INSTANCE(dequantize<FormatBF16, float>)
INSTANCE(dequantize<FormatQ8_0, f16>)
INSTANCE(dequantize<FormatQ8_0, float>)
INSTANCE(dequantize<FormatFP8, f16>)
INSTANCE(dequantize<FormatFP8, float>)
INSTANCE(dequantize<FormatQ4_0, f16>)
INSTANCE(dequantize<FormatQ4_0, float>)
INSTANCE(dequantize<FormatQ4_K, f16>)
INSTANCE(dequantize<FormatQ4_K, float>)
INSTANCE(dequantize<FormatQ6_K, f16>)
INSTANCE(dequantize<FormatQ6_K, float>)
INSTANCE(dequantize<Blocks<3>, f16>)
INSTANCE(dequantize<Blocks<3>, float>)
INSTANCE(dequantize<Blocks<6>, f16>)
INSTANCE(dequantize<Blocks<6>, float>)
INSTANCE(dequantize<Blocks<7>, f16>)
INSTANCE(dequantize<Blocks<7>, float>)
INSTANCE(dequantize<Blocks<10>, f16>)
INSTANCE(dequantize<Blocks<10>, float>)
INSTANCE(dequantize<Blocks<11>, f16>)
INSTANCE(dequantize<Blocks<11>, float>)
INSTANCE(dequantize<Blocks<13>, f16>)
INSTANCE(dequantize<Blocks<13>, float>)
INSTANCE(dequantize<Blocks<16>, f16>)
INSTANCE(dequantize<Blocks<16>, float>)
INSTANCE(dequantize<Blocks<17>, f16>)
INSTANCE(dequantize<Blocks<17>, float>)
INSTANCE(dequantize<Blocks<18>, f16>)
INSTANCE(dequantize<Blocks<18>, float>)
INSTANCE(dequantize<Blocks<19>, f16>)
INSTANCE(dequantize<Blocks<19>, float>)
INSTANCE(dequantize<Blocks<20>, f16>)
INSTANCE(dequantize<Blocks<20>, float>)
INSTANCE(dequantize<Blocks<21>, f16>)
INSTANCE(dequantize<Blocks<21>, float>)
INSTANCE(dequantize<Blocks<22>, f16>)
INSTANCE(dequantize<Blocks<22>, float>)
INSTANCE(dequantize<Blocks<23>, f16>)
INSTANCE(dequantize<Blocks<23>, float>)
INSTANCE(dequantize<Blocks<29>, f16>)
INSTANCE(dequantize<Blocks<29>, float>)
INSTANCE(dequantize<Blocks<34>, f16>)
INSTANCE(dequantize<Blocks<34>, float>)
INSTANCE(dequantize<Blocks<35>, f16>)
INSTANCE(dequantize<Blocks<35>, float>)
INSTANCE(dequantize<Blocks<39>, bf16>)
INSTANCE(dequantize<Blocks<39>, float>)
INSTANCE(dequantize<Blocks<257>, f16>)
INSTANCE(dequantize<Blocks<257>, float>)

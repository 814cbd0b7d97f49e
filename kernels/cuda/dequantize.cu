// Rows of a weight as 16-bit or 32-bit floats: for products by a library (cuBLASLt), and for
// formats without a product kernel.
//
//   out [rows, padded_cols] of T, zero beyond cols; weight rows first_row .. first_row + rows
//   grid: (padded_cols / 2048, rows); block 128
//   moves: the weight once, 2 or 4 bytes per weight out

#include "blocks.cuh"

template <class T>
DEVICE void store_four(T* out, float4 v) {
  *reinterpret_cast<uint2*>(out) =
      make_uint2(pack_as(T{}, v.x, v.y), pack_as(T{}, v.z, v.w));
}
DEVICE void store_four(float* out, float4 v) { *reinterpret_cast<float4*>(out) = v; }

template <class F, class T>
__global__ void __launch_bounds__(128, 4)
    dequantize(T* out, const u8* weight, u64 row_stride, u32 first_row, u32 rows, u32 cols,
               u32 padded_cols, const u64* codebooks) {
  wait_for_previous_kernel();
  constexpr u32 kElements = F::kRun * F::kRuns;
  const u32 row = blockIdx.y;
  if (row >= rows) return;
  T* to = out + u64(row) * padded_cols;
  const u8* from = weight + (u64(first_row) + row) * row_stride;
  const u32 n_chunks = chunks_of<F>(cols), per_block = 2048 / kElements;
  const u32 end = min(n_chunks, (blockIdx.x + 1) * per_block);
  for (u32 chunk = blockIdx.x * per_block + threadIdx.x; chunk < end; chunk += blockDim.x) {
    const typename F::Chunk c = F::load(from, cols, chunk, codebooks);
    for (u32 r = 0; r < F::kRuns; ++r) {
      const float scale = F::scale(c, r), least = F::min(c, r);
      for (u32 j = 0; j < F::kRun / 4; ++j) {
        float4 v = F::four(c, r, j);
        if (F::kScaled) {
          v = make_float4(v.x * scale - least, v.y * scale - least, v.z * scale - least,
                          v.w * scale - least);
        }
        // A chunk may extend beyond the last column, but rows are padded with zeros on both sides.
        const u32 col = F::column(chunk, r, j);
        if (col < padded_cols) store_four(to + col, v);
      }
    }
  }
  const u32 written = n_chunks * kElements;
  if (blockIdx.x != gridDim.x - 1) return;
  for (u32 i = written + threadIdx.x; i < padded_cols; i += blockDim.x) convert(0.0f, to[i]);
}

INSTANCE(dequantize<FormatF32, f16>)
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
INSTANCE(dequantize<Blocks<39>, f16>)
INSTANCE(dequantize<Blocks<39>, float>)

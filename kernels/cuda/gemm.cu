// Products of many tokens on tensor cores, used without a library and for formats that the library
// cannot read: out = residual + alpha * activation(x weight^T + bias).
//
//   x converted to T; weight: rows in the format F; out [.., out_stride] F32
//   grid: (rows / 128, tokens / 64); block 256; dynamic shared: gemm_shared_bytes, 55296
//
// The method is that of gemm.cuh.

#include "activation.cuh"
#include "gemm.cuh"
#include "row_set.cuh"

template <class F, class T>
__global__ void __launch_bounds__(kThreads)
    gemm(ProductOperands a, Epilogue e) {
  wait_for_previous_kernel();
  DYNAMIC_SHARED(T, memory);
  const u32 first_token = blockIdx.y * kTokens, count = *a.set.count;
  if (first_token >= count) return;
  const T* x = static_cast<const T*>(a.x.data);
  multiply_tile<F>(
      memory, a.weight, a.x.padded_cols, blockIdx.x * kRows, min(kTokens, count - first_token),
      [&](u32 i) { return x + u64(first_token + i) * a.x.padded_cols; },
      [&](u32 row, u32 i, float sum) {
        store_product(a.out, e, sum * a.x.scale[first_token + i],
                      row_of_set(a.set, first_token + i), row);
      });
}

INSTANCE(gemm<FormatF16, f16>)
INSTANCE(gemm<FormatBF16, bf16>)
INSTANCE(gemm<FormatQ8_0, f16>)
INSTANCE(gemm<FormatFP8, f16>)
INSTANCE(gemm<FormatQ4_0, f16>)
INSTANCE(gemm<FormatQ4_K, f16>)
INSTANCE(gemm<FormatQ6_K, f16>)
INSTANCE(gemm<Blocks<3>, f16>)
INSTANCE(gemm<Blocks<6>, f16>)
INSTANCE(gemm<Blocks<7>, f16>)
INSTANCE(gemm<Blocks<10>, f16>)
INSTANCE(gemm<Blocks<11>, f16>)
INSTANCE(gemm<Blocks<13>, f16>)
INSTANCE(gemm<Blocks<16>, f16>)
INSTANCE(gemm<Blocks<17>, f16>)
INSTANCE(gemm<Blocks<18>, f16>)
INSTANCE(gemm<Blocks<19>, f16>)
INSTANCE(gemm<Blocks<20>, f16>)
INSTANCE(gemm<Blocks<21>, f16>)
INSTANCE(gemm<Blocks<22>, f16>)
INSTANCE(gemm<Blocks<23>, f16>)
INSTANCE(gemm<Blocks<29>, f16>)
INSTANCE(gemm<Blocks<34>, f16>)
INSTANCE(gemm<Blocks<35>, f16>)
INSTANCE(gemm<Blocks<39>, bf16>)
INSTANCE(gemm<Blocks<257>, f16>)

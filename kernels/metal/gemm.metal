// Products of a prompt: out = residual + alpha * activation(x weight^T + bias), or the gated unit
// of such products. Buffers and geometry: arguments.h; the method: gemm.h.

#include "activation.h"
#include "gemm.h"

// The tokens of a tile, from index `first` of a set.
template <class T>
struct SetTokens {
  device const T* x;
  uint stride;
  RowSet set;
  uint first;
  uint count;

  uint number(uint i) const { return row_of(set, first + i); }
  device const T* row(uint i) const { return x + ulong(number(i)) * stride; }
};

template <class F>
[[kernel, max_total_threads_per_threadgroup(128)]] void gemm(
    device float* out [[buffer(0)]],
    device const typename TileFormat<F>::Tile* x [[buffer(1)]],
    device const float* factors [[buffer(2)]], device const u8* weight [[buffer(3)]],
    device const u8* weight_2 [[buffer(4)]], device const u8* weight_3 [[buffer(5)]],
    device const uint* n_rows [[buffer(6)]], device const uint* row_list [[buffer(7)]],
    device const float* bias [[buffer(8)]], device const float* residual [[buffer(9)]],
    device const ulong* codebooks [[buffer(10)]], constant MatvecArgs& args [[buffer(11)]],
    uint2 at [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float4 memory[kGemmFours];
  const RowSet set = row_set(n_rows, row_list, args.has_row_list);
  const uint first_token = at.x * kGemmTokens, first_row = at.y * kGemmRows;
  if (first_token >= set.count) return;
  const SetTokens<typename TileFormat<F>::Tile> own = {
      x, token_stride<F>(args.cols), set, first_token, min(kGemmTokens, set.count - first_token)};
  const WeightRows rows = weight_rows(weight, weight_2, weight_3, args);
  threadgroup const float* products =
      multiply_tile<F>(memory, rows, first_row, own, codebooks, thread_index, simdgroup);

  const ProductOutput to = product_output(out, bias, residual, args);
  const uint row = thread_index % kGemmRows;
  if (first_row + row >= args.rows) return;
  for (uint t = thread_index / kGemmRows; t < own.count; t += kThreads / kGemmRows) {
    const uint token = own.number(t);
    const float factor = token_factor<F>(factors, token);
    threadgroup const float* row_products = products + t * kGemmRows;
    store_products(to, row_products[row] * factor, row_products[row ^ 1] * factor, token,
                   first_row + row);
  }
}

INSTANCE(gemm<FormatF32>)
INSTANCE(gemm<FormatF16>)
INSTANCE(gemm<FormatBF16>)
INSTANCE(gemm<FormatQ8_0>)
INSTANCE(gemm<FormatFP8>)
INSTANCE(gemm<FormatQ4_0>)
INSTANCE(gemm<FormatQ4_K>)
INSTANCE(gemm<FormatQ6_K>)
INSTANCE(gemm<Blocks<3>>)
INSTANCE(gemm<Blocks<6>>)
INSTANCE(gemm<Blocks<7>>)
INSTANCE(gemm<Blocks<10>>)
INSTANCE(gemm<Blocks<11>>)
INSTANCE(gemm<Blocks<13>>)
INSTANCE(gemm<Blocks<16>>)
INSTANCE(gemm<Blocks<17>>)
INSTANCE(gemm<Blocks<18>>)
INSTANCE(gemm<Blocks<19>>)
INSTANCE(gemm<Blocks<20>>)
INSTANCE(gemm<Blocks<21>>)
INSTANCE(gemm<Blocks<22>>)
INSTANCE(gemm<Blocks<23>>)
INSTANCE(gemm<Blocks<29>>)
INSTANCE(gemm<Blocks<34>>)
INSTANCE(gemm<Blocks<35>>)
INSTANCE(gemm<Blocks<39>>)
INSTANCE(gemm<Blocks<257>>)

// Products of a few tokens: out = residual + alpha * activation(x weight^T + bias), or the gated
// unit of such products. Buffers and geometry: arguments.h; the method: matvec.h.

#include "activation.h"
#include "matvec.h"

struct StoreProduct {
  ProductOutput to;
  RowSet set;
  uint first;

  void operator()(uint row, uint t, RowProduct p) const {
    if (first + t >= set.count) return;
    store_products(to, p.product, p.second, row_of(set, first + t), row);
  }
};

template <class F, uint tokens>
[[kernel, max_total_threads_per_threadgroup(256)]] void matvec(
    device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
    device const u8* weight [[buffer(2)]], device const u8* weight_2 [[buffer(3)]],
    device const u8* weight_3 [[buffer(4)]], device const uint* n_rows [[buffer(5)]],
    device const uint* row_list [[buffer(6)]], device const float* bias [[buffer(7)]],
    device const float* residual [[buffer(8)]], device const ulong* codebooks [[buffer(9)]],
    constant MatvecArgs& args [[buffer(10)]],
    uint2 at [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[PartialSums<F, tokens, PlainTokens<tokens>>::kCount];
  const RowSet set = row_set(n_rows, row_list, args.has_row_list);
  const uint first = at.y * tokens;
  if (first >= set.count) return;
  PlainTokens<tokens> token_rows;
  for (uint t = 0; t < tokens; ++t) {
    token_rows.row[t] = x + ulong(row_of(set, first + t)) * args.cols;
  }
  const WeightRows rows = weight_rows(weight, weight_2, weight_3, args);
  const StoreProduct store = {product_output(out, bias, residual, args), set, first};
  multiply_rows<F, tokens>(rows, token_rows, at.x, args.split, codebooks, partial,
                           {thread_index, lane, simdgroup, n_simdgroups}, store);
}

INSTANCE(matvec<FormatF32, 1>)
INSTANCE(matvec<FormatF32, 2>)
INSTANCE(matvec<FormatF32, 4>)
INSTANCE(matvec<FormatF32, 8>)
INSTANCE(matvec<FormatF16, 1>)
INSTANCE(matvec<FormatF16, 2>)
INSTANCE(matvec<FormatF16, 4>)
INSTANCE(matvec<FormatF16, 8>)
INSTANCE(matvec<FormatBF16, 1>)
INSTANCE(matvec<FormatBF16, 2>)
INSTANCE(matvec<FormatBF16, 4>)
INSTANCE(matvec<FormatBF16, 8>)
INSTANCE(matvec<FormatQ8_0, 1>)
INSTANCE(matvec<FormatQ8_0, 2>)
INSTANCE(matvec<FormatQ8_0, 4>)
INSTANCE(matvec<FormatQ8_0, 8>)
INSTANCE(matvec<FormatFP8, 1>)
INSTANCE(matvec<FormatFP8, 2>)
INSTANCE(matvec<FormatFP8, 4>)
INSTANCE(matvec<FormatFP8, 8>)
INSTANCE(matvec<FormatQ4_0, 1>)
INSTANCE(matvec<FormatQ4_0, 2>)
INSTANCE(matvec<FormatQ4_0, 4>)
INSTANCE(matvec<FormatQ4_0, 8>)
INSTANCE(matvec<FormatQ4_K, 1>)
INSTANCE(matvec<FormatQ4_K, 2>)
INSTANCE(matvec<FormatQ4_K, 4>)
INSTANCE(matvec<FormatQ4_K, 8>)
INSTANCE(matvec<FormatQ6_K, 1>)
INSTANCE(matvec<FormatQ6_K, 2>)
INSTANCE(matvec<FormatQ6_K, 4>)
INSTANCE(matvec<FormatQ6_K, 8>)
INSTANCE(matvec<Blocks<3>, 1>)
INSTANCE(matvec<Blocks<3>, 4>)
INSTANCE(matvec<Blocks<6>, 1>)
INSTANCE(matvec<Blocks<6>, 4>)
INSTANCE(matvec<Blocks<7>, 1>)
INSTANCE(matvec<Blocks<7>, 4>)
INSTANCE(matvec<Blocks<10>, 1>)
INSTANCE(matvec<Blocks<10>, 4>)
INSTANCE(matvec<Blocks<11>, 1>)
INSTANCE(matvec<Blocks<11>, 4>)
INSTANCE(matvec<Blocks<13>, 1>)
INSTANCE(matvec<Blocks<13>, 4>)
INSTANCE(matvec<Blocks<16>, 1>)
INSTANCE(matvec<Blocks<16>, 4>)
INSTANCE(matvec<Blocks<17>, 1>)
INSTANCE(matvec<Blocks<17>, 4>)
INSTANCE(matvec<Blocks<18>, 1>)
INSTANCE(matvec<Blocks<18>, 4>)
INSTANCE(matvec<Blocks<19>, 1>)
INSTANCE(matvec<Blocks<19>, 4>)
INSTANCE(matvec<Blocks<20>, 1>)
INSTANCE(matvec<Blocks<20>, 4>)
INSTANCE(matvec<Blocks<21>, 1>)
INSTANCE(matvec<Blocks<21>, 4>)
INSTANCE(matvec<Blocks<22>, 1>)
INSTANCE(matvec<Blocks<22>, 4>)
INSTANCE(matvec<Blocks<23>, 1>)
INSTANCE(matvec<Blocks<23>, 4>)
INSTANCE(matvec<Blocks<29>, 1>)
INSTANCE(matvec<Blocks<29>, 4>)
INSTANCE(matvec<Blocks<34>, 1>)
INSTANCE(matvec<Blocks<34>, 4>)
INSTANCE(matvec<Blocks<35>, 1>)
INSTANCE(matvec<Blocks<35>, 4>)
INSTANCE(matvec<Blocks<39>, 1>)
INSTANCE(matvec<Blocks<39>, 4>)
INSTANCE(matvec<Blocks<257>, 1>)
INSTANCE(matvec<Blocks<257>, 4>)

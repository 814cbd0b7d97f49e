// Products of a few tokens, fused with the preceding RMSNorm: out = residual + alpha * activation(
// (x / rms(x, eps) * (norm_weight + offset)) weight^T + bias). Buffers and geometry: arguments.h;
// the method: matvec.h.
//
// Saves a launch per block of a model, and writing and reading the normalized x: when decoding one
// token of a small model, launches take as long as products. The factor 1 / rms(x) is computed in
// the same pass, since a product is linear.

#include "activation.h"
#include "matvec.h"

struct StoreNormedProduct {
  ProductOutput to;
  RowSet set;
  uint first;
  uint cols;
  float eps;

  void operator()(uint row, uint t, RowProduct p) const {
    if (first + t >= set.count) return;
    const float scale = 1.0f / precise::sqrt(p.squares / float(cols) + eps);
    store_products(to, p.product * scale, p.second * scale, row_of(set, first + t), row);
  }
};

template <class F, uint tokens>
[[kernel, max_total_threads_per_threadgroup(256)]] void rms_norm_matvec(
    device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
    device const float* norm_weight [[buffer(2)]], device const u8* weight [[buffer(3)]],
    device const u8* weight_2 [[buffer(4)]], device const u8* weight_3 [[buffer(5)]],
    device const uint* n_rows [[buffer(6)]], device const uint* row_list [[buffer(7)]],
    device const float* bias [[buffer(8)]], device const float* residual [[buffer(9)]],
    constant RmsNormMatvecArgs& args [[buffer(10)]],
    uint2 at [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float partial[PartialSums<F, tokens, NormedTokens<tokens>>::kCount];
  constant MatvecArgs& product = args.product;
  const RowSet set = row_set(n_rows, row_list, product.has_row_list);
  const uint first = at.y * tokens;
  if (first >= set.count) return;
  const NormedTokens<tokens> token_rows = normed_tokens<tokens>(x, norm_weight, args, set, first);
  const WeightRows rows = weight_rows(weight, weight_2, weight_3, product);
  const StoreNormedProduct store = {product_output(out, bias, residual, product), set, first,
                                    product.cols, args.eps};
  multiply_rows<F, tokens>(rows, token_rows, at.x, product.split, nullptr, partial,
                           {thread_index, lane, simdgroup, n_simdgroups}, store);
}

INSTANCE(rms_norm_matvec<FormatF32, 1>)
INSTANCE(rms_norm_matvec<FormatF32, 2>)
INSTANCE(rms_norm_matvec<FormatF32, 4>)
INSTANCE(rms_norm_matvec<FormatF32, 8>)
INSTANCE(rms_norm_matvec<FormatF16, 1>)
INSTANCE(rms_norm_matvec<FormatF16, 2>)
INSTANCE(rms_norm_matvec<FormatF16, 4>)
INSTANCE(rms_norm_matvec<FormatF16, 8>)
INSTANCE(rms_norm_matvec<FormatBF16, 1>)
INSTANCE(rms_norm_matvec<FormatBF16, 2>)
INSTANCE(rms_norm_matvec<FormatBF16, 4>)
INSTANCE(rms_norm_matvec<FormatBF16, 8>)
INSTANCE(rms_norm_matvec<FormatQ8_0, 1>)
INSTANCE(rms_norm_matvec<FormatQ8_0, 2>)
INSTANCE(rms_norm_matvec<FormatQ8_0, 4>)
INSTANCE(rms_norm_matvec<FormatQ8_0, 8>)
INSTANCE(rms_norm_matvec<FormatFP8, 1>)
INSTANCE(rms_norm_matvec<FormatFP8, 2>)
INSTANCE(rms_norm_matvec<FormatFP8, 4>)
INSTANCE(rms_norm_matvec<FormatFP8, 8>)
INSTANCE(rms_norm_matvec<FormatQ4_0, 1>)
INSTANCE(rms_norm_matvec<FormatQ4_0, 2>)
INSTANCE(rms_norm_matvec<FormatQ4_0, 4>)
INSTANCE(rms_norm_matvec<FormatQ4_0, 8>)
INSTANCE(rms_norm_matvec<FormatQ4_K, 1>)
INSTANCE(rms_norm_matvec<FormatQ4_K, 2>)
INSTANCE(rms_norm_matvec<FormatQ4_K, 4>)
INSTANCE(rms_norm_matvec<FormatQ4_K, 8>)
INSTANCE(rms_norm_matvec<FormatQ6_K, 1>)
INSTANCE(rms_norm_matvec<FormatQ6_K, 2>)
INSTANCE(rms_norm_matvec<FormatQ6_K, 4>)
INSTANCE(rms_norm_matvec<FormatQ6_K, 8>)

#pragma once

// The kernels of all devices, as the tests launch them. Tests, references and tolerances are the
// same for all devices.
//
// Kernels of kernels/arguments are launched with their arguments and the geometry that plans use
// (csrc/gpu/launch_geometry.h). For the others, a struct names an operation, and each device
// defines `launch` in cuda/operations.cpp or metal/operations.cpp, with its kernels' names,
// parameters and geometry. Pointers are to memory of the device (Buffer), null if absent.

#include "../../../csrc/forge.h"
#include "../../../csrc/gpu/launch_geometry.h"
#include "pages.h"
#include "weights.h"

namespace kernel_test {

using namespace kernel_args;

// Launches a kernel with the addresses of its buffers and the bytes of its scalars; each device
// defines it.
void launch_kernel(const std::string& instance, const forge::Geometry& geometry,
                   const std::vector<const void*>& buffers, const void* scalars,
                   size_t scalar_bytes);

// Launches kernel K; `arguments`, if any, are its template arguments, as in "<FormatQ8_0>".
template <class K>
void launch(const forge::Geometry& geometry,
            const typename K::template Buffers<const void*>& buffers,
            const typename K::Args& scalars, const std::string& arguments = "") {
  const auto* first = reinterpret_cast<const void* const*>(&buffers);
  const std::vector<const void*> addresses(first, first + sizeof(buffers) / sizeof(*first));
  launch_kernel(K::kName + arguments, geometry, addresses, &scalars, sizeof(scalars));
}
// The grid is made for `rows`; kernels read from a buffer how many exist.
template <class K>
void launch(u32 rows, const typename K::template Buffers<const void*>& buffers,
            const typename K::Args& scalars, const std::string& arguments = "") {
  launch<K>(forge::geometry(scalars, rows), buffers, scalars, arguments);
}

// The template argument of gated_delta_rule.
u32 delta_rows(u32 k_dim);
// The geometry of rope_append.
forge::Geometry append_geometry(const RopeAppendArgs& args, u32 tokens);
// Bytes of shared memory in which fused_residual_rms_norm keeps a row.
u64 kept_row_bytes(u32 cols);

// out = residual + alpha * activation(product + bias).
struct Epilogue {
  const float* bias;
  const float* residual;
  float alpha;
  u32 activation;
};

// The grids of the following are made for `max_rows` (tokens, outputs); *n_rows of them exist.

// Few tokens, `at_once` computed together; `split` warps or SIMD groups share rows.
struct Matvec {
  float* out;
  const float* x;
  const DeviceWeight* weight;
  const u32* n_rows;
  u32 max_rows, out_stride;
  Epilogue epilogue;
  u32 at_once, split;
};
// Relative rounding error of operands on tensor cores: 11 bits, or 8 for BF16 and, on CUDA, MXFP4.
// The errors of a sum of products are random and reach at most a fifth of the tolerance.
inline double product_rounding(const WeightKind& kind) {
  return kind.type == 30 || kind.type == 39 ? 5e-3 : 6e-4;
}
// Relative rounding error of the operands of Matvec on this device; 0 for F32.
double matvec_rounding(const WeightKind& kind);
// Many tokens.
struct Gemm {
  float* out;
  const float* x;
  const DeviceWeight* weight;
  const u32* n_rows;
  u32 max_rows, out_stride;
  Epilogue epilogue;
};

// moe_group, whose threads and shared memory differ between devices.
struct PairGroups {
  MoeTile* tiles;
  u32 *n_tiles, *pairs;
  const float* route;
  const u32* n_tokens;
  u32 n_experts, top_k, tile_tokens;
};
struct GroupedMatvec {
  float* out;
  const float* x;
  const DeviceWeight* weight;
  u32 expert_rows, top_k, x_shared;
  const MoeTile* tiles;
  const u32 *n_tiles, *pairs;
  u32 max_tiles;
  const float* route;  // of which CUDA reads the experts if at_once is 1
  const float* bias;
  u32 at_once, split;
};
// Many tokens; at_once and split of the product are ignored, and tiles have up to
// grouped_gemm_tokens() pairs.
struct GroupedGemm {
  GroupedMatvec product;
  const u32* n_tokens;
  u32 max_tokens;
};
u32 grouped_gemm_tokens();

// The kernels that choose the tokens of n outputs, in a grid for n + 1.
struct SampleTokens {
  u8* results;
  const float* logits;
  const forge_sampling* sampling;
  const i32 *history, *bias_ids;
  const float* bias_values;
  const u32 *masks, *n_outputs;
  u32 n;
  SamplingArgs args;
};

struct AttentionArguments {
  const float* sinks;
  const u32 *mask, *mask_stride;  // for masked kernels: bits, or the bits of floats
  float scale, softcap;
  u32 n_heads, window, causal, max_queries, mask_heads, mask_is_bits;
  u32 chunked = 0;
};
struct NaiveAttention {
  const KvType* type;
  float* out;
  const float* q;
  const Pages* pages;
  const i32 *positions, *sequences, *n_keys;
  const Sequences* tables;
  const u32* n_tokens;
  u32 max_tokens;
  AttentionArguments arguments;
};

struct PrefillAttention {
  const KvType* type;
  u32 dim;
  float* out;
  const float* q;
  const Pages* pages;
  AttentionArguments arguments;
  const QueryTile* tiles;
  const u32* n_tiles;
  u32 max_tiles;
  const Sequences* tables;
};
// The splits, and the merge of their results.
struct DecodeAttention {
  const KvType* type;
  u32 dim;
  float *out, *partial_out, *partial_ml;
  const float* q;
  const Pages* pages;
  AttentionArguments arguments;
  const QueryTile* tiles;  // without work
  const AttentionWork* work;
  const u32* n_work;
  u32 max_work;
  const Sequences* tables;
};
// Divides the positions of tiles into entries of work, and adds two unused entries.
Buffer<AttentionWork> divide_work(const std::vector<QueryTile>& tiles, bool causal,
                                  u32 split_tokens);
// Returns the type itself, or F16 if the device's attention kernels for prompts and decoding do not
// support it.
const KvType& attended_type(const KvType& type);

void launch(const Matvec& op);
void launch(const Gemm& op);
void launch(const PairGroups& op);
void launch(const GroupedMatvec& op);
void launch(const GroupedGemm& op);
void launch(const SampleTokens& op);
void launch(const NaiveAttention& op);
void launch(const PrefillAttention& op);
void launch(const DecodeAttention& op);
// Attention with values inside of keys, where `dim` is the size of values. Runs decoded queries and
// the merge of their splits, or, without `work`, prompts with n_work tiles.
void launch_latent(const DecodeAttention& op);

// The activations of forge.h.
double plain_activation(u32 activation, double x);

}  // namespace kernel_test

// Launches the operations with the kernels of kernels/metal, as described in arguments.h.

#include "../operations.h"

#include <algorithm>

#include "launch.h"

namespace kernel_test {

namespace {

std::string instance(const char* kernel, const std::string& format, u32 n) {
  return kernel + ("<" + format + ", ") + std::to_string(n) + ">";
}
std::string instance(const char* kernel, const std::string& type) {
  return kernel + ("<" + type + ">");
}

u32 present(const void* optional) { return optional ? 1 : 0; }

metal_args::AttentionArgs attention_args(const AttentionArguments& a, const Pages& pages,
                                         const Sequences& tables) {
  return {.kv = pages.kernel_pages(),
          .page_stride = tables.page_stride,
          .n_heads = a.n_heads,
          .scale = a.scale,
          .softcap = a.softcap,
          .window = a.window,
          .causal = a.causal,
          .max_queries = a.max_queries,
          .has_sinks = present(a.sinks),
          .chunked = a.chunked};
}

}  // namespace

void launch_metal(const std::string& name, const emulator::MetalLaunch& shape,
                  std::vector<const void*> buffers, const void* scalars, size_t scalar_bytes) {
  const emulator::MetalKernel* kernel = emulator::find_metal_kernel(name);
  if (!kernel) fail_test("there is no kernel %s", name.c_str());
  const size_t n = buffers.size();
  if (kernel->arguments.size() != n + 1 || kernel->arguments[n].bytes != scalar_bytes) {
    fail_test("%s takes other parameters", name.c_str());
  }
  for (size_t i = 0; i < n; ++i) {
    if (kernel->arguments[i].bytes != 0) fail_test("%s takes other parameters", name.c_str());
    if (!buffers[i]) buffers[i] = reinterpret_cast<const void*>(4096);
  }
  buffers.push_back(scalars);
  std::vector<void*> parameters;
  for (const void* each : buffers) parameters.push_back(const_cast<void*>(each));
  kernel->launch(shape, parameters.data());
}

void launch_kernel(const std::string& instance, const forge::Geometry& geometry,
                   const std::vector<const void*>& buffers, const void* scalars,
                   size_t scalar_bytes) {
  const auto& [grid, group] = geometry;
  launch_metal(instance, {{grid.x, grid.y, grid.z}, {group.threads}, group.memory}, buffers,
               scalars, scalar_bytes);
}

void launch(const SampleTokens& op) {
  const u32 vocabulary = op.args.vocabulary, chunks = op.n * ((vocabulary + kChunk - 1) / kChunk);
  Buffer<float> adjusted(op.n * vocabulary), maxima(chunks), adjusted_maxima(chunks), sums(chunks);
  Buffer<float> next_logits(chunks);
  Buffer<u32> next_ids(chunks), occurrences(op.n * vocabulary);
  Buffer<u64> masses(chunks);
  std::fill(occurrences.begin(), occurrences.end(), 0u);
  const forge::Geometry by_chunk = forge::chunk_geometry(op.args, op.n + 1);
  const forge::Geometry by_output{{op.n + 1}, {512}};
  launch<AdjustLogits>(by_output,
                       {.adjusted = adjusted.data(),
                        .occurrences = occurrences.data(),
                        .logits = op.logits,
                        .sampling = op.sampling,
                        .history = op.history,
                        .bias_ids = op.bias_ids,
                        .bias_values = op.bias_values,
                        .masks = op.masks,
                        .n_outputs = op.n_outputs},
                       op.args);
  launch<ChunkMaxima>(by_chunk,
                      {.maxima = maxima.data(),
                       .adjusted_maxima = adjusted_maxima.data(),
                       .logits = op.logits,
                       .adjusted = adjusted.data(),
                       .sampling = op.sampling,
                       .n_outputs = op.n_outputs},
                      op.args);
  launch<FusedTemperatureSoftmax>(by_chunk,
                                  {.sums = sums.data(),
                                   .masses = masses.data(),
                                   .logits = op.logits,
                                   .adjusted = adjusted.data(),
                                   .maxima = maxima.data(),
                                   .adjusted_maxima = adjusted_maxima.data(),
                                   .sampling = op.sampling,
                                   .n_outputs = op.n_outputs},
                                  op.args);
  launch<SampleToken>(by_output,
                      {.results = op.results,
                       .logits = op.logits,
                       .adjusted = adjusted.data(),
                       .maxima = maxima.data(),
                       .adjusted_maxima = adjusted_maxima.data(),
                       .sums = sums.data(),
                       .masses = masses.data(),
                       .sampling = op.sampling,
                       .n_outputs = op.n_outputs},
                      op.args);
  launch<TopKCandidates>(by_output,
                         {.results = op.results,
                          .logits = op.logits,
                          .maxima = maxima.data(),
                          .sums = sums.data(),
                          .next_logits = next_logits.data(),
                          .next_ids = next_ids.data(),
                          .sampling = op.sampling,
                          .n_outputs = op.n_outputs},
                         op.args);
  EXPECT(std::all_of(occurrences.begin(), occurrences.end(), [](u32 count) { return count == 0; }));
}

// Lanes hold numbers in fours.
u32 delta_rows(u32 k_dim) {
  u32 fours = 1;
  while (fours * 4 * kDeltaLanes < k_dim) fours *= 2;
  return fours;
}

forge::Geometry append_geometry(const RopeAppendArgs& args, u32 tokens) {
  return forge::geometry(args, tokens);
}

u64 kept_row_bytes(u32) { return 0; }

u32 simdgroup_rows(const DeviceWeight& weight) {
  return weight.format[0] == 'B' ? metal_args::kMatvecBlocksRows : metal_args::kMatvecRows;
}

metal_args::MatvecArgs matvec_args(const DeviceWeight& w, u32 out_stride, u32 split,
                                   const Epilogue& e) {
  return {.row_stride = w.row_stride,
          .rows = w.rows,
          .second_row = w.rows,
          .third_row = w.rows,
          .cols = w.cols,
          .out_stride = out_stride,
          .split = split,
          .has_row_list = 0,
          .epilogue = {e.alpha, e.activation, present(e.bias), present(e.residual), 0, 0}};
}

double matvec_rounding(const WeightKind&) { return 0; }

void launch(const Matvec& op) {
  const DeviceWeight& w = *op.weight;
  const WeightPieces pieces(w);
  const u32 rows = metal_args::kMatvecSimdgroups / op.split * simdgroup_rows(w);
  launch_metal(instance("matvec", w.format, op.at_once),
               {{blocks_for(w.rows, rows), blocks_for(op.max_rows, op.at_once)}, {256}},
               pieces.in(matvec_args(w, op.out_stride, op.split, op.epilogue)), op.out, op.x,
               pieces.data(0), pieces.data(1), pieces.data(2), op.n_rows, kNothing,
               op.epilogue.bias, op.epilogue.residual, codebooks().data());
}

GemmRows::GemmRows(const DeviceWeight& weight, const float* x, u32 max_rows, u32 pieces,
                   const u32* n_rows, const u32* row_list)
    : x_(x) {
  const std::string format = weight.format;
  if (format == "FormatF32" || format == "FormatBF16") return;
  const u32 cols = weight.cols, all = max_rows * pieces;
  rounded_.emplace(u64(all) * metal_args::rounded_cols(cols));
  factors_.emplace(all);
  launch_metal("round_rows", {{max_rows, pieces}, {256}},
               metal_args::RoundRowsArgs{cols, pieces, present(row_list)}, rounded_->data(),
               factors_->data(), x, n_rows, row_list);
}

void launch(const Gemm& op) {
  const DeviceWeight& w = *op.weight;
  const WeightPieces pieces(w);
  const GemmRows rows(w, op.x, op.max_rows, 1, op.n_rows);
  launch_metal(instance("gemm", w.format),
               {{blocks_for(op.max_rows, metal_args::kGemmTokens),
                 blocks_for(w.rows, metal_args::kGemmRows)},
                {128}},
               pieces.in(matvec_args(w, op.out_stride, 0, op.epilogue)), op.out, rows.x(),
               rows.factors(), pieces.data(0), pieces.data(1), pieces.data(2), op.n_rows, kNothing,
               op.epilogue.bias, op.epilogue.residual, codebooks().data());
}

void launch_moe_group(const PairGroups& op, const u32* row_list) {
  launch<MoeGroup>({{1}, {256, (2 * op.n_experts + 1) * 4}},
                   {.tiles = op.tiles,
                    .n_tiles = op.n_tiles,
                    .pairs = op.pairs,
                    .route = op.route,
                    .n_tokens = op.n_tokens,
                    .row_list = row_list},
                   {.n_experts = op.n_experts,
                    .top_k = op.top_k,
                    .tile_tokens = op.tile_tokens,
                    .has_row_list = row_list != nullptr});
}

void launch(const PairGroups& op) { launch_moe_group(op, nullptr); }

static metal_args::GroupedMatvecArgs grouped_args(const GroupedMatvec& op) {
  return {op.weight->row_stride, op.expert_rows,    op.weight->cols, op.top_k,
          op.x_shared,           present(op.bias), op.split};
}

void launch(const GroupedMatvec& op) {
  const DeviceWeight& w = *op.weight;
  const u32 rows = metal_args::kMatvecSimdgroups / op.split * simdgroup_rows(w);
  launch_metal(instance("grouped_matvec", w.format, op.at_once),
               {{blocks_for(op.expert_rows, rows), op.max_tiles}, {256}}, grouped_args(op), op.out,
               op.x, w.data.data(), op.tiles, op.n_tiles, op.pairs, op.bias, codebooks().data());
}

u32 grouped_gemm_tokens() { return metal_args::kGemmTokens; }

void launch(const GroupedGemm& op) {
  const GroupedMatvec& p = op.product;
  const DeviceWeight& w = *p.weight;
  const GemmRows rows(w, p.x, op.max_tokens, p.x_shared ? 1 : p.top_k, op.n_tokens);
  launch_metal(instance("grouped_gemm", w.format),
               {{blocks_for(p.expert_rows, metal_args::kGemmRows), p.max_tiles}, {128}},
               grouped_args(p), p.out, rows.x(), rows.factors(), w.data.data(), p.tiles, p.n_tiles,
               p.pairs, p.bias, codebooks().data());
}

void launch(const NaiveAttention& op) {
  const AttentionArguments& a = op.arguments;
  launch_metal(instance("naive_attention", op.type->name), {{a.n_heads, op.max_tokens}, {128}},
               metal_args::NaiveAttentionArgs{op.pages->kernel_pages(), op.tables->page_stride,
                                              a.n_heads, a.scale, a.window, a.softcap,
                                              present(a.sinks), a.causal,
                                              a.mask ? a.mask_heads : 0, a.mask_is_bits,
                                              a.chunked},
               op.out, op.q, op.pages->cache.data, op.positions, op.sequences, op.n_keys,
               op.tables->page_tables.data(), op.n_tokens, a.sinks, a.mask, a.mask_stride);
}

const KvType& attended_type(const KvType& type) {
  return is_scaled(type) ? type : kv_types[1];
}

void launch(const PrefillAttention& op) {
  launch_metal(instance("prefill_attention", op.type->name, op.dim),
               {{op.arguments.n_heads, op.max_tiles, 2}, {128}},
               attention_args(op.arguments, *op.pages, *op.tables), op.out, op.q,
               op.pages->cache.data, op.tiles, op.n_tiles, op.tables->page_tables.data(),
               op.arguments.sinks);
}

// True if a tile has several splits. Without, partial results have no memory and nothing is merged.
static bool has_splits(const DecodeAttention& op) {
  return op.work && std::any_of(op.work, op.work + *op.n_work,
                                [](const AttentionWork& entry) { return entry.n_splits > 1; });
}

static void merge_splits(const DecodeAttention& op) {
  const AttentionArguments& a = op.arguments;
  launch_metal("merge_attention_splits", {{op.max_work, a.n_heads * a.max_queries}, {128}},
               metal_args::MergeAttentionArgs{a.n_heads, a.max_queries, op.dim, present(a.sinks)},
               op.out, op.partial_out, op.partial_ml, op.work, op.n_work, a.sinks);
}

void launch(const DecodeAttention& op) {
  const AttentionArguments& a = op.arguments;
  const u32 n_kv_heads = op.pages->cache.n_kv_heads;
  const u32 blocks = blocks_for(a.n_heads / n_kv_heads * a.max_queries, metal_args::kDecodeRows);
  const bool splits = has_splits(op);
  const char* kernel = op.dim <= metal_args::kNarrowHead ? "narrow_decode_attention"
                                                         : "batched_decode_attention";
  launch_metal(instance(kernel, op.type->name, op.dim),
               {{op.max_work, n_kv_heads * blocks}, {metal_args::decode_threads(op.dim)}},
               attention_args(a, *op.pages, *op.tables), op.out, splits ? op.partial_out : nullptr,
               splits ? op.partial_ml : nullptr, op.q, op.pages->cache.data, op.work, op.n_work,
               op.tables->page_tables.data(), a.sinks);
  if (splits) merge_splits(op);
}

void launch_latent(const DecodeAttention& op) {
  const AttentionArguments& a = op.arguments;
  const KvCache& kv = op.pages->cache;
  const u32 blocks = blocks_for(a.n_heads / kv.n_kv_heads * a.max_queries, metal_args::kLatentRows);
  const bool splits = has_splits(op);
  launch_metal("latent_attention<" + std::string(op.type->name) + ", " +
                   std::to_string(kv.k_dim) + ", " + std::to_string(kv.v_dim) + ">",
               {{op.max_work, kv.n_kv_heads * blocks}, {128}},
               metal_args::LatentAttentionArgs{attention_args(a, *op.pages, *op.tables),
                                               present(op.work)},
               op.out, splits ? op.partial_out : nullptr, splits ? op.partial_ml : nullptr, op.q,
               kv.data, op.tiles, op.work, op.n_work, op.tables->page_tables.data(), a.sinks);
  if (splits) merge_splits(op);
}

}  // namespace kernel_test

// Launches the operations with the kernels of kernels/cuda.

#include "../operations.h"

#include <algorithm>

#include "launch.h"

namespace kernel_test {

namespace {

std::string instance(const char* kernel, const std::string& format, u32 tokens) {
  return kernel + ("<" + format + ", ") + std::to_string(tokens) + ">";
}

// The operands of an operation of attention.
template <class Op>
cuda_args::AttentionOperands<const void*> operands(const Op& op) {
  const AttentionArguments& a = op.arguments;
  return {.out = op.out,
          .q = op.q,
          .kv = {op.pages->kernel_pages(), op.pages->cache.data},
          .page_tables = op.tables->page_tables.data(),
          .page_stride = op.tables->page_stride,
          .args = {.sinks = a.sinks,
                   .mask = a.mask,
                   .mask_stride = a.mask_stride,
                   .scale = a.scale,
                   .softcap = a.softcap,
                   .n_heads = a.n_heads,
                   .window = a.window,
                   .causal = a.causal,
                   .max_queries = a.max_queries,
                   .mask_heads = a.mask_heads,
                   .mask_is_bits = a.mask_is_bits,
                   .chunked = a.chunked}};
}

cuda_args::AttentionSplits<const void*> splits(const DecodeAttention& op) {
  return {.out = op.partial_out, .ml = op.partial_ml, .work = op.work};
}

ProductOperands operands(const GroupedMatvec& op, const ProductRows& x, const RowSet& set) {
  return {.out = op.out, .x = x, .weight = weight_rows(*op.weight, op.expert_rows), .set = set};
}

cuda_args::ExpertPairs<const void*> expert_pairs(const GroupedMatvec& op) {
  return {.tiles = op.tiles,
          .n_tiles = op.n_tiles,
          .pairs = op.pairs,
          .route = op.route,
          .bias = op.bias,
          .top_k = op.top_k,
          .x_shared = op.x_shared};
}

}  // namespace

cuda_args::WeightRows<const void*> weight_rows(const DeviceWeight& weight, u32 rows) {
  return {.data = weight.data.data(),
          .codebooks = codebooks().data(),
          .row_stride = weight.row_stride,
          .rows = rows,
          .cols = weight.cols};
}

cuda_args::Epilogue<const void*> epilogue(const Epilogue& e, u32 out_stride) {
  return {.bias = e.bias,
          .residual = e.residual,
          .alpha = e.alpha,
          .activation = e.activation,
          .out_stride = out_stride};
}

void launch_kernel(const std::string& instance, const forge::Geometry& geometry,
                   const std::vector<const void*>& buffers, const void* scalars,
                   size_t scalar_bytes) {
  // One parameter: the buffers, then the scalars.
  const size_t pointer_bytes = buffers.size() * sizeof(void*);
  std::vector<u8> parameter((pointer_bytes + scalar_bytes + 7) / 8 * 8);
  std::memcpy(parameter.data(), buffers.data(), pointer_bytes);
  std::memcpy(parameter.data() + pointer_bytes, scalars, scalar_bytes);
  void* parameters[] = {parameter.data()};
  const auto& [grid, group] = geometry;
  run_kernel(instance, {{grid.x, grid.y, grid.z}, {group.threads}, group.memory},
             {parameter.size()}, parameters);
}

void launch(const SampleTokens& op) {
  using namespace cuda_args;
  const u32 n = op.n, vocabulary = op.args.vocabulary;
  const u32 chunks = n * ((vocabulary + kChunk - 1) / kChunk);
  // summarize_logits reads a row for each output of the grid.
  Buffer<float> logits((n + 1) * vocabulary), adjusted(n * vocabulary);
  std::copy_n(op.logits, n * vocabulary, logits.begin());
  Buffer<DrawnRow> rows(n + 1);
  Buffer<float> maxima(chunks), sums(chunks), next_logits(chunks);
  Buffer<u64> bests(chunks), masses(chunks), histograms(n * kBuckets), lists(n * kListed);
  Buffer<u32> next_ids(chunks), arrivals(n);
  std::fill(arrivals.begin(), arrivals.end(), 0u);
  const forge::Geometry by_chunk = forge::chunk_geometry(op.args, n + 1);
  launch<SummarizeLogits>(by_chunk,
                          {.results = op.results,
                           .rows = rows.data(),
                           .adjusted = adjusted.data(),
                           .maxima = maxima.data(),
                           .sums = sums.data(),
                           .bests = bests.data(),
                           .histograms = histograms.data(),
                           .arrivals = arrivals.data(),
                           .logits = logits.data(),
                           .sampling = op.sampling,
                           .history = op.history,
                           .bias_ids = op.bias_ids,
                           .bias_values = op.bias_values,
                           .masks = op.masks,
                           .n_outputs = op.n_outputs},
                          op.args);
  launch<ShareHistogram>(by_chunk,
                         {.histograms = histograms.data(),
                          .rows = rows.data(),
                          .logits = logits.data(),
                          .adjusted = adjusted.data(),
                          .sampling = op.sampling},
                         op.args);
  launch<DrawToken>(by_chunk,
                    {.results = op.results,
                     .rows = rows.data(),
                     .masses = masses.data(),
                     .lists = lists.data(),
                     .arrivals = arrivals.data(),
                     .histograms = histograms.data(),
                     .bests = bests.data(),
                     .logits = logits.data(),
                     .adjusted = adjusted.data(),
                     .sampling = op.sampling},
                    op.args);
  launch<TopKCandidates>({{n + 1}, {512}},
                         {.results = op.results,
                          .logits = logits.data(),
                          .maxima = maxima.data(),
                          .sums = sums.data(),
                          .next_logits = next_logits.data(),
                          .next_ids = next_ids.data(),
                          .sampling = op.sampling,
                          .n_outputs = op.n_outputs},
                         op.args);
  EXPECT(std::all_of(arrivals.begin(), arrivals.end(), [](u32 count) { return count == 0; }));
}

u32 delta_rows(u32 k_dim) {
  u32 rows = 2;
  while (rows * kDeltaLanes < k_dim) rows *= 2;
  return rows;
}

forge::Geometry append_geometry(const RopeAppendArgs& args, u32 tokens) {
  return forge::warp_geometry(args, tokens);
}

u64 kept_row_bytes(u32 cols) { return cols * sizeof(float); }

void launch(const Matvec& op) {
  const DeviceWeight& w = *op.weight;
  if (w.format != "FormatF32") return launch_decode_gemm(op, {op.n_rows, nullptr});
  launch("matvec<" + std::to_string(op.at_once) + ">",
         {{blocks_for(w.rows, 8 / op.split * 2), blocks_for(op.max_rows, op.at_once)}, {256}},
         ProductOperands{.out = op.out,
                         .x = float_rows(op.x),
                         .weight = weight_rows(w, w.rows),
                         .set = {op.n_rows, nullptr}},
         epilogue(op.epilogue, op.out_stride), op.split);
}

double matvec_rounding(const WeightKind& kind) {
  return kind.type == 0 ? 0 : product_rounding(kind);
}

// The columns of a stage of a ring, and the bytes of a row of it.
static std::pair<u32, u32> stage_size(const DeviceWeight& weight) {
  const std::string& f = weight.format;
  if (f == "FormatQ8_0") return {128, 136};
  if (f == "FormatFP8") return {128, 144};
  if (f == "FormatQ4_0") return {128, 72};
  if (f == "FormatQ4_K") return {128, 80};
  if (f == "FormatQ6_K") return {128, 108};
  return {64, 128};
}

DecodeTile decode_tile(const DeviceWeight& weight, u32 at_once, u32 parts) {
  using Place = DecodeTile::Place;
  const bool is_generic = weight.format[0] == 'B';
  const u32 spans = blocks_for(weight.cols, 128);
  if (is_generic) {
    const u32 tokens = at_once == 1 ? 1 : 8;
    const u32 x = tokens == 1 ? blocks_for(spans, parts) * 256 : 8 * 256 * 4 * 3;
    const u32 shared = std::max(x, 16 * tokens * 36);
    return {tokens / 8, tokens, 32, parts, shared, 256, Place::registers, 1, 0};
  }
  if (at_once == 1) {
    const u32 rows = parts == 1 ? 32 : 16;
    const u32 shared = 8 * 9216 + 2 * 4 * parts * rows * 4 + spans * 256;
    return {0, 1, rows, parts, shared, 256, Place::warp_rings, 1, 0};
  }
  // Some warps have no rows, or those of another slice.
  const u32 tiles = at_once == 2 ? 1 : at_once;
  const u32 rows = parts == 1 ? 160 : tiles == 8 ? 64 : 48;
  const u32 slices = parts == 1 ? 1 : tiles == 4 ? 2 : 4;
  const u32 stages = 3 + (tiles + parts) % 4;
  const auto [cols, row_bytes] = stage_size(weight);
  const u32 stage = slices * (rows * row_bytes + 8 * tiles * cols * 2);
  const u32 shared = rows * 8 * tiles * 4 + stages * stage, threads = tiles == 8 ? 256 : 512;
  return {tiles, 8 * tiles, rows, parts, shared, threads, Place::block_ring, slices, stages};
}

DecodeTile expert_tile(const DeviceWeight& weight, u32 at_once) {
  if (at_once == 1) return decode_tile(weight, 1);
  return {1, 8, 32, 1, 8 * 256 * 4 * 3, 256, DecodeTile::Place::registers, 1, 0};
}

std::string decode_instance(const char* kernel, const DeviceWeight& w, const DecodeTile& tile) {
  return instance(kernel, w.format + ", " + half_of(w), tile.token_tiles);
}

static u32 padded_cols(u32 cols, u32 chunk_cols) {
  return chunk_cols == 0 ? blocks_for(cols, 64) * 64 : blocks_for(cols, 128) * 128;
}

void launch_decode_gemm(const Matvec& op, const RowSet& set, const InputNorm& norm) {
  const DeviceWeight& w = *op.weight;
  const DecodeTile tile = decode_tile(w, op.at_once, op.split);
  const auto launch_with = [&](const ProductRows& x, const SharedConversion& conversion) {
    const ProductOperands operands = {
        .out = op.out, .x = x, .weight = weight_rows(w, w.rows), .set = set};
    with_tiling(tile, op.max_rows, w.rows, [&](emulator::Dim3 grid, const Tiling& tiling) {
      launch(decode_instance("decode_gemm", w, tile), {grid, {tile.threads}, tile.shared}, operands,
             epilogue(op.epilogue, op.out_stride), tiling, conversion);
    });
  };
  if (tile.place == DecodeTile::Place::block_ring) {
    const ConvertedByProduct x(w, op.x, set, op.max_rows, norm);
    launch_with(x.half.rows(), x.conversion);
  } else if (tile.token_tiles == 0) {
    launch_with(float_rows(op.x, norm), {});
  } else {
    launch_with(convert_rows(w, op.x, set, op.max_rows, 1, norm).rows(), {});
  }
}

ConvertedByProduct::ConvertedByProduct(const DeviceWeight& weight, const float* x,
                                       const RowSet& set, u32 max_rows, const InputNorm& norm)
    : half{Buffer<u16>(max_rows * padded_cols(weight.cols, 0)), Buffer<float>(max_rows),
           padded_cols(weight.cols, 0)} {
  conversion = {.rows = {.out = half.data.data(),
                         .scale = half.scale.data(),
                         .x = x,
                         .norm = norm,
                         .set = set,
                         .cols = weight.cols,
                         .padded_cols = half.padded_cols,
                         .chunk_cols = 0},
                .counters = counters.data()};
}

ConvertedByProduct::~ConvertedByProduct() {
  for (const u32 count : counters) EXPECT(count == 0);
}

std::string half_of(const DeviceWeight& weight) {
  return weight.format == "FormatBF16" || weight.format == "Blocks<39>" ? "bf16" : "f16";
}

HalfRows convert_rows(const DeviceWeight& weight, const float* x, const RowSet& set, u32 max_rows,
                      u32 pieces, const InputNorm& norm, u32 chunk_cols) {
  const u32 cols = weight.cols, padded = padded_cols(cols, chunk_cols), rows = max_rows * pieces;
  HalfRows half{Buffer<u16>(rows * padded), Buffer<float>(rows), padded};
  launch("convert_rows<" + half_of(weight) + ">", {{max_rows, pieces}, {256}},
         cuda_args::ConvertRows<const void*>{.out = half.data.data(),
                                             .scale = half.scale.data(),
                                             .x = x,
                                             .norm = norm,
                                             .set = set,
                                             .cols = cols,
                                             .padded_cols = padded,
                                             .chunk_cols = chunk_cols});
  return half;
}

void launch_gemm(const Gemm& op, const RowSet& set) {
  const DeviceWeight& w = *op.weight;
  const HalfRows half = convert_rows(w, op.x, set, op.max_rows, 1);
  const emulator::Dim3 grid = {blocks_for(w.rows, 128), blocks_for(op.max_rows, 64)};
  launch("gemm<" + w.format + ", " + half_of(w) + ">", {grid, {256}, 55296},
         ProductOperands{
             .out = op.out, .x = half.rows(), .weight = weight_rows(w, w.rows), .set = set},
         epilogue(op.epilogue, op.out_stride));
}

namespace {

// Columns of a chunk of a quantised weight that wgmma multiplies as it is; 0 for 16-bit weights.
u32 wgmma_chunk_cols(const DeviceWeight& w) {
  if (w.format == "FormatQ8_0" || w.format == "FormatFP8") return 16;
  return w.format[6] == 'Q' ? 32 : 0;
}

bool describe_rows(TensorMap& map, const HalfRows& half, u64 rows) {
  const u64 row = 2 * u64(half.padded_cols);
  return describe_tensor(map, half.data.data(), {half.padded_cols, rows, 1, 1},
                         {row, rows * row, rows * row}, 128);
}

bool describe_weight(TensorMap& map, const DeviceWeight& w, u64 matrices, u32 products) {
  const u64 rows = w.rows / matrices;
  return describe_tensor(map, w.data.data(), {w.cols, rows, matrices, 1},
                         {w.row_stride, rows * w.row_stride, w.rows * w.row_stride},
                         128 * products);
}

// Launches `kernel` or its variant for quantised weights, in tiles of 128 or 2 * 128 rows.
template <class Output>
bool launch_wgmma(const std::string& kernel, const DeviceWeight& w, u64 matrices, u32 products,
                  u32 blocks, const HalfRows& half, u64 x_rows, const ProductOperands& operands,
                  const Output& output) {
  TensorMap x, weight;
  if (!describe_rows(x, half, x_rows)) return false;
  // Experts in Q6_K have no wide tile.
  if (kernel == "wgmma_grouped_" && w.format == "FormatQ6_K") products = 1;
  const std::string end = half_of(w) + ", " + std::to_string(products) + ">";
  if (wgmma_chunk_cols(w) > 0) {
    launch(kernel + "quantized_gemm<" + w.format + ", " + end,
           {{blocks}, {384}, products == 1 ? 141376u : 149568u}, operands, output, x);
    return true;
  }
  if (!describe_weight(weight, w, matrices, products)) return false;
  launch(kernel + "gemm<" + end, {{blocks}, {384}, products == 1 ? 165952u : 231488u}, operands,
         output, x, weight);
  return true;
}

}  // namespace

bool launch_wgmma_gemm(const Gemm& op, const RowSet& set, u32 products, u32 blocks) {
  const DeviceWeight& w = *op.weight;
  const HalfRows half = convert_rows(w, op.x, set, op.max_rows, 1, {}, wgmma_chunk_cols(w));
  return launch_wgmma(
      "wgmma_", w, 1, products, blocks, half, op.max_rows,
      ProductOperands{
          .out = op.out, .x = half.rows(), .weight = weight_rows(w, w.rows), .set = set},
      epilogue(op.epilogue, op.out_stride));
}

void launch(const Gemm& op) { launch_gemm(op, {op.n_rows, nullptr}); }

void launch_moe_group(const PairGroups& op, const RowSet& set, u32 warps) {
  launch<MoeGroup>({{1}, {warps * 32, ((warps + 2) * op.n_experts + 2) * 4}},
                   {.tiles = op.tiles,
                    .n_tiles = op.n_tiles,
                    .pairs = op.pairs,
                    .route = op.route,
                    .n_tokens = set.count,
                    .row_list = set.list},
                   {.n_experts = op.n_experts,
                    .top_k = op.top_k,
                    .tile_tokens = op.tile_tokens,
                    .has_row_list = set.list != nullptr});
}

void launch(const PairGroups& op) { launch_moe_group(op, {op.n_tokens, nullptr}, 2); }

void launch_grouped_matvec(const GroupedMatvec& op, const RowSet& set) {
  const DeviceWeight& w = *op.weight;
  if (w.format == "FormatF32") {
    launch("grouped_matvec<" + std::to_string(op.at_once) + ">",
           {{blocks_for(op.expert_rows, 8 / op.split * 2), op.max_tiles}, {256}},
           operands(op, float_rows(op.x), set), expert_pairs(op), op.split);
    return;
  }
  u32 n_pairs = 0;
  for (u32 i = 0; i < *op.n_tiles; ++i) n_pairs += op.tiles[i].count;
  const u32 tokens = n_pairs / op.top_k;
  const Buffer<u32> count = {tokens};
  const DecodeTile tile = expert_tile(w, std::min(op.at_once, 2u));
  const HalfRows half =
      convert_rows(w, op.x, {count.data(), set.list}, tokens, op.x_shared ? 1 : op.top_k);
  const bool is_one = tile.token_tiles == 0;
  launch(decode_instance("grouped_decode_gemm", w, tile),
         {{blocks_for(op.expert_rows, tile.rows), op.max_tiles}, {256}, tile.shared},
         operands(op, is_one ? float_rows(op.x) : half.rows(), {count.data(), set.list}),
         expert_pairs(op));
}

void launch_gated_grouped(const GroupedMatvec& op, const RowSet& set, u32 unit) {
  const DeviceWeight& w = *op.weight;
  const DecodeTile tile = expert_tile(w, 1);
  launch("gated_grouped_decode_gemm<" + w.format + ", " + half_of(w) + ">",
         {{blocks_for(op.expert_rows / 2, tile.rows / 2), op.max_tiles}, {256}, tile.shared},
         operands(op, float_rows(op.x), set), expert_pairs(op), unit);
}

void launch(const GroupedMatvec& op) { launch_grouped_matvec(op, {nullptr, nullptr}); }

void launch_grouped_gemm(const GroupedMatvec& op, const RowSet& set, u32 max_tokens) {
  const DeviceWeight& w = *op.weight;
  const u32 pieces = op.x_shared ? 1 : op.top_k;
  const HalfRows half = convert_rows(w, op.x, set, max_tokens, pieces);
  launch("grouped_gemm<" + w.format + ", " + half_of(w) + ">",
         {{blocks_for(op.expert_rows, 128), op.max_tiles}, {256}, 55296},
         operands(op, half.rows(), set), expert_pairs(op));
}

bool launch_wgmma_grouped_gemm(const GroupedGemm& op, u32 products, u32 blocks) {
  const GroupedMatvec& product = op.product;
  const DeviceWeight& w = *product.weight;
  const u32 pairs = op.max_tokens * product.top_k, chunk_cols = wgmma_chunk_cols(w);
  const u32 padded = padded_cols(w.cols, chunk_cols);
  HalfRows half = {Buffer<u16>(u64(pairs) * padded), Buffer<float>(pairs), padded};
  const RowSet set = {op.n_tokens, nullptr};
  launch("convert_pairs<" + half_of(w) + ">", {{pairs}, {256}},
         cuda_args::ConvertRows<const void*>{.out = half.data.data(),
                                             .scale = half.scale.data(),
                                             .x = product.x,
                                             .norm = {},
                                             .set = set,
                                             .cols = w.cols,
                                             .padded_cols = padded,
                                             .chunk_cols = chunk_cols},
         expert_pairs(product));
  return launch_wgmma("wgmma_grouped_", w, w.rows / product.expert_rows, products, blocks, half,
                      pairs, operands(product, half.rows(), set), expert_pairs(product));
}

u32 grouped_gemm_tokens() { return 64; }

void launch(const GroupedGemm& op) {
  launch_grouped_gemm(op.product, {op.n_tokens, nullptr}, op.max_tokens);
}

void launch(const NaiveAttention& op) {
  const std::string name = "naive_attention<" + std::string(op.type->name);
  launch(name + (op.arguments.mask ? ", Masked>" : ">"),
         {{op.arguments.n_heads, op.max_tokens}, {128}}, operands(op),
         cuda_args::NaiveAttention<const void*>{.positions = op.positions,
                                                  .sequences = op.sequences,
                                                  .n_keys = op.n_keys,
                                                  .rows = {op.n_tokens, nullptr}});
}

const KvType& attended_type(const KvType& type) { return type; }

void launch(const PrefillAttention& op) {
  const u32 tokens = op.dim > 128 ? 32 : 64;
  launch(instance("prefill_attention", op.type->name, op.dim),
         {{op.arguments.n_heads, op.max_tiles}, {128}, (64 + 4 * tokens) * (op.dim + 8) * 2},
         operands(op),
         cuda_args::PrefillAttention<const void*>{.tiles = op.tiles, .n_tiles = op.n_tiles});
}

namespace {

// Launches a kernel that decodes, with `rows` after its other parameters.
template <class... Rows>
void launch_decode(const DecodeAttention& op, const std::string& name, const Rows&... rows) {
  const AttentionArguments& a = op.arguments;
  const KvCache& kv = op.pages->cache;
  const u32 warps = op.dim > 128 ? 2 : 4, tokens = op.dim <= 64 ? 32 : 16;
  const u32 row = (op.dim + 8) * 2;
  const u32 slices = is_scaled(*op.type)
                         ? (op.type->bits == 4 ? 10 : 6) * row_bytes(*op.type, op.dim) + row +
                               4 * blocks_for(op.dim, 32)
                         : 4 * row;
  const size_t tiles_bytes = 16 * row + warps * tokens * slices,
               sums_bytes = warps * 16 * (op.dim + 2) * 4;
  const u32 query_blocks = blocks_for(a.n_heads / kv.n_kv_heads * a.max_queries, 16);
  Buffer<u32> arrivals(u64(op.max_work) * kv.n_kv_heads * query_blocks);
  std::fill(arrivals.begin(), arrivals.end(), 0);
  launch(name,
         {{op.max_work, kv.n_kv_heads, query_blocks},
          {warps * 32},
          std::max(tiles_bytes, sums_bytes)},
         operands(op), splits(op), arrivals.data(), rows...);
  for (const u32 count : arrivals) EXPECT(count == 0);
}

}  // namespace

void launch(const DecodeAttention& op) {
  const std::string name = instance("batched_decode_attention", op.type->name, op.dim);
  launch_decode(op, op.arguments.mask ? name.substr(0, name.size() - 1) + ", Masked>" : name);
}

void launch_rope_decode(const DecodeAttention& op, const NewRows& rows) {
  launch_decode(op, instance("rope_decode_attention", op.type->name, op.dim), rows);
}

void launch_latent(const DecodeAttention& op) {
  const AttentionArguments& a = op.arguments;
  const KvCache& kv = op.pages->cache;
  const u32 rows = a.n_heads / kv.n_kv_heads * a.max_queries;
  launch("latent_attention<" + std::string(op.type->name) + ", " + std::to_string(kv.k_dim) + ", " +
             std::to_string(kv.v_dim) + ">",
         {{op.max_work, kv.n_kv_heads * blocks_for(rows, 32)},
          {256},
          64 * (kv.k_dim + 8) * 2 + 32 * 24 * 2 + 32 * 43 * 4},
         operands(op),
         cuda_args::LatentAttention<const void*>{
             .splits = splits(op), .tiles = op.tiles, .n_work = op.n_work});
  if (!op.work) return;
  launch("merge_attention_splits", {{op.max_work, a.n_heads * a.max_queries}, {128}}, operands(op),
         splits(op));
}

}  // namespace kernel_test

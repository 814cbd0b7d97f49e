// Rotary embedding, the KV cache and attention.

#include <algorithm>

#include "plan_builder.h"

namespace forge::cuda {

namespace {

// Positions of a tile of latent_attention.
constexpr uint32_t kLatentTokens = 16;
// Wider heads leave less shared memory for tiles, narrower ones more.
constexpr uint32_t kWideHead = 128;
constexpr uint32_t kNarrowHead = 64;
// Columns of a block of cast_rows, and blocks that share the rows of a tile.
constexpr uint32_t kCastCols = 1024;
constexpr uint32_t kCastRows = 8;
// Maximum number of parts in which libflash_attn divides keys.
constexpr uint32_t kMostSplits = 128;

// Threads and shared memory of a block of batched_decode_attention.
struct DecodeTile {
  uint32_t warps;
  uint32_t shared_bytes;
};
DecodeTile decode_tile(const KvShape& shape) {
  const uint32_t dim = shape.k_head_dim, n_scales = divide_up(dim, kKvScaleGroup);
  const uint32_t warps = dim > kWideHead ? 2 : 4, tokens = dim <= kNarrowHead ? 32 : 16;
  const uint32_t row = (dim + 8) * 2;
  // Of each warp two slices of keys and values; of a cache with scales three or five slices as they
  // are stored, one slice in F16, and scales.
  const uint32_t n_stored = shape.type == WeightType::Q4_0 ? 5 : 3;
  const auto stored = static_cast<uint32_t>(n_stored * kv_row_bytes(shape.type, dim));
  const uint32_t slices = shape.has_scales() ? 2 * stored + row + 2 * n_scales * 2 : 2 * 2 * row;
  // Later the sums of 16 queries.
  const uint32_t sums = warps * kDecodeRows * (dim + 2) * 4;
  return {warps, std::max(kDecodeRows * row + warps * tokens * slices, sums)};
}

// The instance of a kernel that applies the mask of a run.
std::string with_mask(std::string instance, bool is_masked) {
  if (is_masked) instance.replace(instance.size() - 1, 1, ", Masked>");
  return instance;
}

}  // namespace

void PlanBuilder::emit(const RopeAppendOp& op) {
  const auto* attention = device_.device().fuses_operations() ? next_op<AttentionOp>() : nullptr;
  if (!attention || attention->q != op.out || attention->kv != op.kv ||
      !program_.is_read_once(op.out) || !attention_.appends_rows(op, *attention, shape_)) {
    return emit_rope_append(op, warp_geometry(rope_append_args(op), shape_.tokens));
  }
  compute_with_next();
  emit_decode_attention(*attention, &op);
}

void PlanBuilder::emit(const AttentionOp& op) {
  const AttentionKernels kernels = attention_.kernels(op, is_masked(op));
  const auto takes_all = [&](AttentionKernel kernel) {
    return kernels.decode == kernel && kernels.prefill == kernel;
  };
  const bool has_naive = kernels.decode == AttentionKernel::naive ||
                         kernels.prefill == AttentionKernel::naive;
  // The library's shorter runs for decoding are not the classes of rows that kernels share.
  const bool divides_rows = attention_.policy(program_).decode_queries == kDecodeQueries;
  if (takes_all(AttentionKernel::naive) || (has_naive && !divides_rows)) {
    return emit_naive_attention(op, row_groups(op.out).all);
  }
  if (kernels.decode == AttentionKernel::naive && shape_.decode_tokens > 0) {
    emit_naive_attention(op, row_groups(op.out).decode);
  }
  if (kernels.decode == AttentionKernel::tiled && shape_.decode_work > 0) {
    emit_decode_attention(op);
  }
  if (kernels.prefill == AttentionKernel::tiled && shape_.prefill_tiles > 0) {
    emit_prefill_attention(op);
  }
  if (kernels.prefill == AttentionKernel::naive && shape_.prefill_tokens > 0) {
    emit_naive_attention(op, row_groups(op.out).prefill);
  }
  emit_flash_attention(op, kernels);
}

AttentionArgs PlanBuilder::attention_args(const AttentionOp& op) const {
  const bool masked = is_masked(op);
  return {.sinks = floats_of(op.sinks),
          .mask = masked ? inputs_.attention_mask : DevicePointer{0},
          .mask_stride = masked ? inputs_.attention_mask_stride : DevicePointer{0},
          .scale = op.scale,
          .softcap = op.softcap,
          .n_heads = op.n_heads,
          .window = op.window,
          .causal = op.causal,
          .max_queries = shape_.decode_queries,
          .mask_heads = masked ? shape_.mask_heads : 0,
          .mask_is_bits = masked && shape_.mask_kind == FORGE_MASK_BITS,
          .chunked = op.chunked};
}

AttentionOperands PlanBuilder::attention_operands(const AttentionOp& op) const {
  const CudaKv& kv = CudaKv::of(op.kv);
  return {.out = value(op.out),
          .q = value(op.q),
          .kv = {kv.kernel_pages(), kv.memory()},
          .page_tables = inputs_.page_tables,
          .page_stride = inputs_.page_stride,
          .args = attention_args(op)};
}

AttentionSplits PlanBuilder::decode_splits(const AttentionOp& op) {
  const uint64_t rows = uint64_t{shape_.decode_work} * shape_.decode_queries * op.n_heads;
  return {.out = scratch(rows * op.kv->shape.v_head_dim * sizeof(float)),
          .ml = scratch(rows * 2 * sizeof(float)),
          .work = inputs_.work};
}

void PlanBuilder::merge_splits(const AttentionOp& op, const AttentionSplits& splits) {
  launch("batched_decode_attention.cu", "merge_attention_splits",
         {shape_.decode_work, op.n_heads * shape_.decode_queries}, 128, 0, attention_operands(op),
         splits);
}

void PlanBuilder::emit_decode_attention(const AttentionOp& op, const RopeAppendOp* rows) {
  const CudaKv& kv = CudaKv::of(op.kv);
  const AttentionSplits splits = decode_splits(op);
  if (kv.shape.values_in_keys) {
    emit_latent_attention(op, &splits);
    return merge_splits(op, splits);
  }
  const uint32_t n_kv_heads = kv.shape.n_kv_heads, queries = shape_.decode_queries;
  const uint32_t query_blocks = divide_up(op.n_heads / n_kv_heads * queries, kDecodeRows);
  const Grid grid{shape_.decode_work, n_kv_heads, query_blocks};
  const DevicePointer counters =
      arrivals(uint64_t{shape_.decode_work} * n_kv_heads * query_blocks);
  const DecodeTile tile = decode_tile(kv.shape);
  if (rows) {
    const kernel_args::RopeAppendArgs args = rope_append_args(*rows);
    return launch("batched_decode_attention.cu", head_instance("rope_decode_attention", kv),
                  grid, 32 * tile.warps, tile.shared_bytes, attention_operands(op), splits,
                  counters,
                  cuda_args::NewRows<DevicePointer>{.qkv = value(rows->qkv),
                                                    .rope = value(rows->rope),
                                                    .q_norm = floats(rows->q_norm),
                                                    .k_norm = floats(rows->k_norm),
                                                    .eps = args.eps,
                                                    .offset = args.offset,
                                                    .n_freqs = args.n_freqs,
                                                    .interleaved = args.interleaved});
  }
  launch("batched_decode_attention.cu",
         with_mask(head_instance("batched_decode_attention", kv), is_masked(op)),
         grid, 32 * tile.warps, tile.shared_bytes, attention_operands(op), splits, counters);
}

void PlanBuilder::emit_latent_attention(const AttentionOp& op, const AttentionSplits* splits) {
  const CudaKv& kv = CudaKv::of(op.kv);
  const uint32_t k_dim = kv.shape.k_head_dim, n_kv_heads = kv.shape.n_kv_heads;
  const std::string instance = std::string("latent_attention<") + kv.element() + ", " +
                               std::to_string(k_dim) + ", " +
                               std::to_string(kv.shape.v_head_dim) + ">";
  // Queries and two tiles of keys, exponentials, scores of both halves of a key, and the running
  // sums of each row.
  const uint32_t shared = (kLatentRows + 2 * kLatentTokens) * (k_dim + 8) * 2 +
                          kLatentRows * (kLatentTokens + 8) * 2 +
                          kLatentRows * (2 * (kLatentTokens + 4) + 3) * 4;
  const uint32_t queries = splits ? shape_.decode_queries : kPrefillQueries;
  const uint32_t query_blocks = divide_up(op.n_heads / n_kv_heads * queries, kLatentRows);
  launch("latent_attention.cu", instance,
         {splits ? shape_.decode_work : shape_.prefill_tiles, n_kv_heads * query_blocks}, 256,
         shared, attention_operands(op),
         cuda_args::LatentAttention<DevicePointer>{
             .splits = splits ? *splits : AttentionSplits{},
             .tiles = splits ? inputs_.decode_tiles : inputs_.prefill_tiles,
             .n_work = splits ? inputs_.n_work : inputs_.n_prefill_tiles});
}

void PlanBuilder::emit_prefill_attention(const AttentionOp& op) {
  const CudaKv& kv = CudaKv::of(op.kv);
  if (kv.shape.values_in_keys) return emit_latent_attention(op, nullptr);
  const uint32_t dim = kv.shape.k_head_dim;
  // The queries of a tile, and two tiles of keys and values.
  const uint32_t tokens = dim > kWideHead ? 32 : 64;
  const uint32_t shared = (kPrefillQueries + 4 * tokens) * (dim + 8) * 2;
  launch("prefill_attention.cu", head_instance("prefill_attention", kv),
         {op.n_heads, shape_.prefill_tiles}, 128, shared, attention_operands(op),
         cuda_args::PrefillAttention<DevicePointer>{.tiles = inputs_.prefill_tiles,
                                                      .n_tiles = inputs_.n_prefill_tiles});
}

flash_attn_params PlanBuilder::flash_params(const AttentionOp& op, const RunAddresses& runs) const {
  const CudaKv& kv = CudaKv::of(op.kv);
  const kernel_args::KvPages pages = kv.kernel_pages();
  const auto address = [](DevicePointer at) { return reinterpret_cast<void*>(at); };
  const auto integers = [](DevicePointer at) { return reinterpret_cast<const int32_t*>(at); };
  flash_attn_params p = {};
  p.version = FLASH_ATTN_VERSION;
  p.dtype = kv.shape.type == WeightType::BF16 ? FLASH_ATTN_BF16 : FLASH_ATTN_F16;
  p.flags = op.causal ? FLASH_ATTN_CAUSAL : 0;
  p.head_dim = static_cast<int32_t>(kv.shape.k_head_dim);
  p.n_heads = static_cast<int32_t>(op.n_heads);
  p.n_kv_heads = static_cast<int32_t>(kv.shape.n_kv_heads);
  const uint64_t most_keys = uint64_t{program_.limits.max_pages} * kv.shape.page_tokens;
  p.seqlen_k = static_cast<int32_t>(std::min<uint64_t>(most_keys, INT32_MAX));
  p.window_left = op.window > 0 ? static_cast<int32_t>(op.window) - 1 : -1;
  p.window_right = -1;
  p.scale = op.scale;
  p.softcap = op.softcap;
  p.sinks = reinterpret_cast<const float*>(floats_of(op.sinks));
  p.page_size = static_cast<int32_t>(kv.shape.page_tokens);
  p.block_table_stride = program_.limits.max_pages;
  p.block_table = integers(inputs_.page_tables);
  p.block_rows = integers(runs.sequences);
  p.seqlens_k = integers(op.causal ? runs.ends : runs.n_keys);
  p.cu_seqlens_q = integers(runs.first_rows);
  p.seqlens_q = integers(runs.n_queries);
  p.total_q = static_cast<int32_t>(shape_.tokens);
  p.k = address(kv.memory());
  p.v = address(kv.memory() + pages.v_offset);
  const bool is_q8 = kv.shape.type == WeightType::Q8_0;
  const auto element = static_cast<uint32_t>(kv_row_bytes(kv.shape.type, 1));
  p.k_batch_stride = p.v_batch_stride = static_cast<int64_t>(pages.page_bytes / element);
  p.k_head_stride = p.v_head_stride = pages.head_bytes / element;
  p.k_row_stride = p.v_row_stride = pages.k_dim;
  if (is_q8) {
    p.kv_dtype = FLASH_ATTN_KV_Q8_0;
    p.k_scales = address(kv.memory() + pages.k_scales);
    p.v_scales = address(kv.memory() + pages.v_scales);
  }
  if (is_masked(op)) {
    p.mask_type = shape_.mask_kind == FORGE_MASK_BITS ? FLASH_ATTN_MASK_BITS : FLASH_ATTN_MASK_F32;
    p.mask = address(inputs_.attention_mask);
    p.mask_pitch = integers(inputs_.attention_mask_stride);
    p.mask_row_stride = shape_.mask_heads;
    p.mask_head_stride = shape_.mask_heads > 1 ? 1 : 0;
    p.mask_key_stride = 1;
  }
  p.q_head_stride = p.out_head_stride = pages.k_dim;
  p.q_row_stride = p.out_row_stride = int64_t{op.n_heads} * pages.k_dim;
  return p;
}

void PlanBuilder::emit_flash_attention(const AttentionOp& op, const AttentionKernels& kernels) {
  const bool decodes = kernels.decode == AttentionKernel::flash && shape_.decode_runs > 0;
  const bool prefills = kernels.prefill == AttentionKernel::flash && shape_.prefill_runs > 0;
  if (!decodes && !prefills) return;
  const CudaKv& kv = CudaKv::of(op.kv);
  const uint32_t n = op.n_heads * kv.shape.k_head_dim;
  const DevicePointer q = scratch(uint64_t{shape_.tokens} * n * 2);
  const DevicePointer out = scratch(uint64_t{shape_.tokens} * n * 2);
  const auto call = [&](uint32_t function, flash_attn_params p, DevicePointer tiles,
                        DevicePointer n_tiles, uint32_t max_tiles) {
    const std::string element = kv.shape.type == WeightType::BF16 ? "bf16" : "f16";
    const Grid grid{divide_up(n, kCastCols), max_tiles, kCastRows};
    using CastRows = cuda_args::CastRows<DevicePointer>;
    launch("cast_rows.cu", "cast_rows<float, " + element + ">", grid, 256, 0,
           CastRows{.out = q, .in = value(op.q), .tiles = tiles, .n_tiles = n_tiles, .cols = n});
    p.q = reinterpret_cast<const void*>(q);
    p.out = reinterpret_cast<void*>(out);
    p.workspace_size = attention_.flash().workspace_bytes(function, p);
    p.workspace = reinterpret_cast<void*>(scratch(p.workspace_size));
    plan_.entries.emplace_back(std::in_place_type<FlashCall>, attention_.flash(), function, p);
    launch("cast_rows.cu", "cast_rows<" + element + ", float>", grid, 256, 0,
           CastRows{.out = value(op.out),
                    .in = out,
                    .tiles = tiles,
                    .n_tiles = n_tiles,
                    .cols = n});
  };
  if (decodes) {
    flash_attn_params p = flash_params(op, inputs_.decode_runs);
    p.batch = static_cast<int32_t>(shape_.decode_runs);
    p.seqlen_q = 1;
    // The launch before writes q alone, after its wait for the kernels that append keys.
    p.flags |= FLASH_ATTN_EARLY_KEYS;
    // Enough for one sequence to fill the device. The library's own choice depends on the number of
    // sequences, and the order of their sums would too.
    p.n_splits = static_cast<int32_t>(
        std::clamp(2 * gpu_.multiprocessors / kv.shape.n_kv_heads, 1u, kMostSplits));
    call(FLASH_ATTN_DECODE, p, inputs_.decode_tiles, inputs_.n_decode_tiles, shape_.decode_runs);
  }
  if (prefills) {
    flash_attn_params p = flash_params(op, inputs_.prefill_runs);
    p.batch = static_cast<int32_t>(shape_.prefill_runs);
    p.seqlen_q = static_cast<int32_t>(shape_.tokens);
    call(FLASH_ATTN_VARLEN_FWD, p, inputs_.prefill_tiles, inputs_.n_prefill_tiles,
         shape_.prefill_tiles);
  }
}

void PlanBuilder::emit_naive_attention(const AttentionOp& op, const RowGroup& rows) {
  const CudaKv& kv = CudaKv::of(op.kv);
  launch("naive_attention.cu",
         with_mask(element_instance("naive_attention", kv), is_masked(op)),
         {op.n_heads, rows.max_rows}, 128, 0, attention_operands(op),
         cuda_args::NaiveAttention<DevicePointer>{.positions = inputs_.positions,
                                                    .sequences = inputs_.sequences,
                                                    .n_keys = inputs_.n_keys,
                                                    .rows = rows.set});
}

}  // namespace forge::cuda

// Rotary embedding, the KV cache and attention.

#include <algorithm>

#include "plan_builder.h"

namespace forge::metal {

using namespace metal_args;

namespace {

static_assert(metal_args::kPrefillQueries == forge::kPrefillQueries);

}  // namespace

void PlanBuilder::emit(const AttentionOp& op) {
  // Masked attention has no other kernel.
  if (is_masked(op) || !has_tiled_attention(op)) return emit_naive_attention(op);
  if (shape_.decode_queries > 0) emit_decode_attention(op);
  if (shape_.prefill_tiles > 0) emit_prefill_attention(op);
}

bool PlanBuilder::has_tiled_attention(const AttentionOp& op) const {
  const KvShape& shape = op.kv->shape;
  const bool has_type = shape.type == WeightType::F16 || shape.has_scales();
  const bool has_heads = shape.values_in_keys ? has_latent_heads(shape) : has_tiled_heads(shape);
  return device_.has_known_matrix_places && has_type && has_heads;
}

AttentionArgs PlanBuilder::attention_args(const AttentionOp& op) const {
  return {.kv = MetalKv::of(op.kv).kernel_pages(),
          .page_stride = inputs_.page_stride,
          .n_heads = op.n_heads,
          .scale = op.scale,
          .softcap = op.softcap,
          .window = op.window,
          .causal = op.causal,
          .max_queries = shape_.decode_queries,
          .has_sinks = op.sinks != nullptr,
          .chunked = op.chunked};
}

void PlanBuilder::emit_decode_attention(const AttentionOp& op) {
  const MetalKv& kv = MetalKv::of(op.kv);
  const uint32_t v_dim = kv.shape.v_head_dim, n_kv_heads = kv.shape.n_kv_heads;
  const uint32_t queries = shape_.decode_queries;
  const uint64_t rows = uint64_t{shape_.decode_work} * queries * op.n_heads;
  DecodeSplits splits;
  if (has_splits_) {
    splits = {.out = scratch(rows * v_dim * sizeof(float)),
              .ml = scratch(rows * 2 * sizeof(float))};
  }
  if (kv.shape.values_in_keys) {
    emit_latent_attention(op, &splits);
  } else {
    const uint32_t row_groups = divide_up(op.n_heads / n_kv_heads * queries, kDecodeRows);
    const char* kernel =
        v_dim <= kNarrowHead ? "narrow_decode_attention" : "batched_decode_attention";
    launch("batched_decode_attention", head_instance(kernel, kv),
           {shape_.decode_work, n_kv_heads * row_groups}, {decode_threads(v_dim)},
           {value(op.out), splits.out, splits.ml, value(op.q), kv.memory(), inputs_.work,
            inputs_.n_work, inputs_.page_tables, floats_of(op.sinks)},
           attention_args(op));
  }
  if (!has_splits_) return;
  launch("batched_decode_attention", "merge_attention_splits",
         {shape_.decode_work, op.n_heads * queries}, {128},
         {value(op.out), splits.out, splits.ml, inputs_.work, inputs_.n_work, floats_of(op.sinks)},
         MergeAttentionArgs{.n_heads = op.n_heads,
                            .max_queries = queries,
                            .dim = v_dim,
                            .has_sinks = op.sinks != nullptr});
}

void PlanBuilder::emit_latent_attention(const AttentionOp& op, const DecodeSplits* splits) {
  const MetalKv& kv = MetalKv::of(op.kv);
  const KvShape& shape = kv.shape;
  const uint32_t queries = splits ? shape_.decode_queries : forge::kPrefillQueries;
  const uint32_t row_groups = divide_up(op.n_heads / shape.n_kv_heads * queries, kLatentRows);
  const std::string instance = std::string("latent_attention<") + kv.element() + ", " +
                               std::to_string(shape.k_head_dim) + ", " +
                               std::to_string(shape.v_head_dim) + ">";
  launch("latent_attention", instance,
         {splits ? shape_.decode_work : shape_.prefill_tiles, shape.n_kv_heads * row_groups},
         {128},
         {value(op.out), splits ? splits->out : Place{}, splits ? splits->ml : Place{}, value(op.q),
          kv.memory(), splits ? inputs_.decode_tiles : inputs_.prefill_tiles, inputs_.work,
          splits ? inputs_.n_work : inputs_.n_prefill_tiles, inputs_.page_tables,
          floats_of(op.sinks)},
         LatentAttentionArgs{.attention = attention_args(op), .has_work = splits != nullptr});
}

void PlanBuilder::emit_prefill_attention(const AttentionOp& op) {
  const MetalKv& kv = MetalKv::of(op.kv);
  if (kv.shape.values_in_keys) return emit_latent_attention(op, nullptr);
  launch("prefill_attention", head_instance("prefill_attention", kv),
         {op.n_heads, shape_.prefill_tiles, 2}, {128},
         {value(op.out), value(op.q), kv.memory(), inputs_.prefill_tiles,
          inputs_.n_prefill_tiles, inputs_.page_tables, floats_of(op.sinks)},
         attention_args(op));
}

void PlanBuilder::emit_naive_attention(const AttentionOp& op) {
  const MetalKv& kv = MetalKv::of(op.kv);
  launch("naive_attention", element_instance("naive_attention", kv), {op.n_heads, shape_.tokens},
         {128},
         {value(op.out), value(op.q), kv.memory(), inputs_.positions, inputs_.sequences,
          inputs_.n_keys, inputs_.page_tables, inputs_.n_tokens, floats_of(op.sinks),
          is_masked(op) ? inputs_.attention_mask : Place{}, inputs_.attention_mask_stride},
         NaiveAttentionArgs{.kv = kv.kernel_pages(),
                            .page_stride = inputs_.page_stride,
                            .n_heads = op.n_heads,
                            .scale = op.scale,
                            .window = op.window,
                            .softcap = op.softcap,
                            .has_sinks = op.sinks != nullptr,
                            .causal = op.causal,
                            .mask_heads = is_masked(op) ? shape_.mask_heads : 0,
                            .mask_is_bits = shape_.mask_kind == FORGE_MASK_BITS,
                            .chunked = op.chunked});
}

}  // namespace forge::metal

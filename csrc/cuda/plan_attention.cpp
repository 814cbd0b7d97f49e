// Rotary embedding, the KV cache and attention.

#include <algorithm>

#include "plan_builder.h"

namespace forge::cuda {

namespace {

const CudaKv& cuda_kv(const KvRef& kv) { return static_cast<const CudaKv&>(*kv); }

// Query rows of a warp on tensor cores, and the positions of a slice.
constexpr uint32_t kRowsOfWarp = 16;
// Wider heads leave less shared memory for tiles.
constexpr uint32_t kWideHead = 128;

bool has_tensor_core_kernel(const CudaKv& kv) {
  const KvShape& shape = kv.shape;
  if (shape.type == WeightType::F32 || shape.k_head_dim != shape.v_head_dim) return false;
  switch (shape.k_head_dim) {
    case 16:
    case 32:
    case 64:
    case 80:
    case 96:
    case 128:
    case 256:
      return true;
    default:
      return false;
  }
}

std::string head_instance(const char* kernel, const CudaKv& kv) {
  return std::string(kernel) + "<" + kv.element() + ", " + std::to_string(kv.shape.k_head_dim) +
         ">";
}

std::string element_instance(const char* kernel, const CudaKv& kv) {
  return std::string(kernel) + "<" + kv.element() + ">";
}

uint32_t width_of(const WeightRef& norm) { return norm ? static_cast<uint32_t>(norm->cols) : 0; }

}  // namespace

void PlanBuilder::emit(const RopeAppendOp& op) {
  const CudaKv& kv = cuda_kv(op.kv);
  const KvShape& shape = kv.shape;
  const uint32_t n_freqs = op.rope ? cols(op.rope) / 2 : 0;
  launch("rope_append.cu", element_instance("rope_append", kv),
         {shape_.tokens, op.n_heads + 2 * shape.n_kv_heads}, 128,
         std::max(shape.k_head_dim, shape.v_head_dim) * static_cast<uint32_t>(sizeof(float)),
         value(op.out), value(op.qkv), kv.pages(), inputs_.positions, inputs_.sequences,
         inputs_.page_tables, inputs_.page_stride, inputs_.n_tokens, op.n_heads,
         floats_of(op.q_norm), floats_of(op.k_norm), width_of(op.q_norm), width_of(op.k_norm),
         op.eps, op.weight_offset, value(op.rope), n_freqs,
         static_cast<uint32_t>(op.rope_layout == FORGE_ROPE_INTERLEAVED));
}

void PlanBuilder::emit(const AttentionOp& op) {
  if (!has_tensor_core_kernel(cuda_kv(op.kv))) return emit_naive_attention(op);
  if (shape_.decode_queries > 0) emit_decode_attention(op);
  if (shape_.prefill) emit_prefill_attention(op);
}

AttentionArgs PlanBuilder::attention_args(const AttentionOp& op) const {
  return {.sinks = floats_of(op.sinks),
          .scale = op.scale,
          .softcap = op.softcap,
          .n_heads = op.n_heads,
          .window = op.window,
          .causal = 1,
          .max_queries = shape_.decode_queries};
}

void PlanBuilder::emit_decode_attention(const AttentionOp& op) {
  const CudaKv& kv = cuda_kv(op.kv);
  const uint32_t dim = kv.shape.k_head_dim, n_kv_heads = kv.shape.n_kv_heads;
  const uint32_t queries = shape_.decode_queries;
  const uint64_t rows = uint64_t{shape_.decode_work} * queries * op.n_heads;
  const DevicePointer partial_out = scratch(rows * dim * sizeof(float));
  const DevicePointer partial_ml = scratch(rows * 2 * sizeof(float));
  const AttentionArgs args = attention_args(op);
  // Of each warp two slices of 16 keys and values, twice; later the sums of 16 queries.
  const uint32_t warps = dim > kWideHead ? 2 : 4;
  const uint32_t tiles_bytes = (kRowsOfWarp + warps * 4 * kRowsOfWarp) * (dim + 8) * 2;
  const uint32_t sums_bytes = warps * kRowsOfWarp * (dim + 2) * 4;
  const uint32_t query_blocks = divide_up(op.n_heads / n_kv_heads * queries, kRowsOfWarp);
  launch("batched_decode_attention.cu", head_instance("batched_decode_attention", kv),
         {shape_.decode_work, n_kv_heads * query_blocks}, 32 * warps,
         std::max(tiles_bytes, sums_bytes), partial_out, partial_ml, value(op.q), kv.pages(), args,
         inputs_.decode_tiles, inputs_.work, inputs_.n_work, inputs_.page_tables,
         inputs_.page_stride);
  launch("batched_decode_attention.cu", "merge_attention_splits",
         {shape_.decode_work, op.n_heads * queries}, 128, 0, value(op.out), partial_out,
         partial_ml, args, inputs_.decode_tiles, inputs_.work, inputs_.n_work, dim);
}

void PlanBuilder::emit_prefill_attention(const AttentionOp& op) {
  const CudaKv& kv = cuda_kv(op.kv);
  const uint32_t dim = kv.shape.k_head_dim;
  // The queries of a tile, and two tiles of keys and values.
  const uint32_t tokens = dim > kWideHead ? 32 : 64;
  const uint32_t shared = (kPrefillQueries + 4 * tokens) * (dim + 8) * 2;
  launch("prefill_attention.cu", head_instance("prefill_attention", kv),
         {op.n_heads, shape_.max_prefill_tiles()}, 128, shared, value(op.out), value(op.q),
         kv.pages(), attention_args(op), inputs_.prefill_tiles, inputs_.n_prefill_tiles,
         inputs_.page_tables, inputs_.page_stride);
}

void PlanBuilder::emit_naive_attention(const AttentionOp& op) {
  const CudaKv& kv = cuda_kv(op.kv);
  launch("naive_attention.cu", element_instance("naive_attention", kv),
         {op.n_heads, shape_.tokens}, 128, 0, value(op.out), value(op.q), kv.pages(),
         inputs_.positions, inputs_.sequences, inputs_.page_tables, inputs_.page_stride,
         inputs_.n_tokens, op.n_heads, op.scale, op.window, op.softcap, floats_of(op.sinks));
}

}  // namespace forge::cuda

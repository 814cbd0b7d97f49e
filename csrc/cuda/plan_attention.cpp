// Rotary embedding, the KV cache and attention.

#include <algorithm>

#include "plan_builder.h"

namespace forge::cuda {

namespace {

const CudaKv& cuda_kv(const KvRef& kv) { return static_cast<const CudaKv&>(*kv); }

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

void PlanBuilder::emit(const AttentionOp& op) { emit_naive_attention(op); }

void PlanBuilder::emit_naive_attention(const AttentionOp& op) {
  const CudaKv& kv = cuda_kv(op.kv);
  launch("naive_attention.cu", element_instance("naive_attention", kv),
         {op.n_heads, shape_.tokens}, 128, 0, value(op.out), value(op.q), kv.pages(),
         inputs_.positions, inputs_.sequences, inputs_.page_tables, inputs_.page_stride,
         inputs_.n_tokens, op.n_heads, op.scale, op.window, op.softcap, floats_of(op.sinks));
}

}  // namespace forge::cuda

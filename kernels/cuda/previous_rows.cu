// Keeps a row of each token in the keys of a cache: stores x at the token's position, and writes
// the row of the position before, zeros at position 0.
//
//   x, out [tokens, n_kv_heads * k_dim] F32; grid: (tokens, n_kv_heads); block 128
//
// The row before is in x if its token is in the run, where another block stores it.

#include "kv.cuh"

template <class T>
KERNEL previous_rows(PreviousRows a) {
  wait_for_previous_kernel();
  const KvCache kv = {a.kv, a.pages};
  const u32 token = blockIdx.x, head = blockIdx.y;
  if (token >= *a.n_tokens) return;
  const u32 dim = kv.k_dim;
  const u64 row = (u64(token) * kv.n_kv_heads + head) * dim;
  const u32 position = u32(a.positions[token]);
  for (u32 i = 0; a.has_x && i <= *a.n_copies; ++i) {
    const i32 sequence = keeping_sequence(a, token, i);
    if (sequence < 0) continue;
    const KvRows<T> rows = keys_of<T>(kv, page_of(a, sequence, position), head);
    T* to = rows.row(position % kv.page_tokens);
    for (u32 i = threadIdx.x; i < dim; i += blockDim.x) convert(a.x[row + i], to[i]);
  }
  float* out = a.out + row;
  if (position == 0) {
    for (u32 i = threadIdx.x; i < dim; i += blockDim.x) out[i] = 0;
    return;
  }
  const i32 parent = a.has_x ? a.parents[token] : -1;
  const u32 before = position - 1;
  const KvRows<T> stored = keys_of<T>(kv, page_of(a, a.sequences[token], before), head);
  for (u32 i = threadIdx.x; i < dim; i += blockDim.x) {
    T value;
    if (parent >= 0) {
      convert(a.x[(u64(parent) * kv.n_kv_heads + head) * dim + i], value);
    } else {
      value = stored.row(before % kv.page_tokens)[i];
    }
    out[i] = to_float(value);
  }
}

INSTANCE(previous_rows<float>)
INSTANCE(previous_rows<f16>)
INSTANCE(previous_rows<bf16>)

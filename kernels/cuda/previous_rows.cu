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
  const i32* table = a.page_tables + u64(a.sequences[token]) * a.page_stride;
  const u32 position = u32(a.positions[token]);
  if (a.has_x) {
    const u32 page = u32(table[position / kv.page_tokens]);
    store_row(keys_of<T>(kv, page, head), position % kv.page_tokens, a.x + row);
  }
  float* out = a.out + row;
  if (position == 0) {
    for (u32 i = threadIdx.x; i < dim; i += blockDim.x) out[i] = 0;
    return;
  }
  const bool is_in_run = a.has_x && token > 0 && a.sequences[token - 1] == a.sequences[token];
  const u32 before = position - 1;
  const KvRows<T> stored = keys_of<T>(kv, u32(table[before / kv.page_tokens]), head);
  for (u32 i = threadIdx.x; i < dim; i += blockDim.x) {
    T value;
    if (is_in_run) {
      convert(a.x[row - u64(kv.n_kv_heads) * dim + i], value);
    } else {
      value = stored.row(before % kv.page_tokens)[i];
    }
    out[i] = to_float(value);
  }
}

INSTANCE(previous_rows<float>)
INSTANCE(previous_rows<f16>)
INSTANCE(previous_rows<bf16>)

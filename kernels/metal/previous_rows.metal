// Keeps a row of each token in the keys of a cache: stores x at the token's position, and writes
// the row of the position before, zeros at position 0. Buffers: kv_arguments.h; a threadgroup per
// token and head.
//
// The row before is in x if its token is in the run, where another threadgroup stores it.

#include "kv.h"

template <class T>
[[kernel, max_total_threads_per_threadgroup(128)]] void previous_rows(
    device float* out [[buffer(0)]], device const float* x [[buffer(1)]],
    device u8* pages [[buffer(2)]], device const int* positions [[buffer(3)]],
    device const int* sequences [[buffer(4)]], device const int* page_tables [[buffer(5)]],
    device const uint* n_tokens [[buffer(6)]], device const int* parents [[buffer(7)]],
    device const RowCopy* copies [[buffer(8)]], device const uint* n_copies [[buffer(9)]],
    constant PreviousRowsArgs& args [[buffer(10)]],
    uint2 at [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  const uint token = at.x, head = at.y;
  if (token >= *n_tokens) return;
  const Place p = {thread_index, lane, simdgroup, n_simdgroups};
  constant KvPages& kv = args.kv;
  const uint dim = kv.k_dim;
  const ulong row = (ulong(token) * kv.n_kv_heads + head) * dim;
  device const int* table = page_tables + ulong(uint(sequences[token])) * args.page_stride;
  const uint position = uint(positions[token]);
  for (uint i = 0; args.has_x != 0 && i <= *n_copies; ++i) {
    const int sequence = keeping_sequence(sequences, copies, token, i);
    if (sequence < 0) continue;
    const ulong own = ulong(uint(sequence)) * args.page_stride;
    const uint page = uint(page_tables[own + position / kv.page_tokens]);
    store_row(keys_of<T>(pages, kv, page, head), position % kv.page_tokens, x + row, p);
  }
  if (position == 0) {
    for (uint i = thread_index; i < dim; i += threads_of(p)) out[row + i] = 0;
    return;
  }
  const int parent = args.has_x != 0 ? parents[token] : -1;
  const uint before = position - 1;
  const KvRows<T> stored = keys_of<T>(pages, kv, uint(table[before / kv.page_tokens]), head);
  for (uint i = thread_index; i < dim; i += threads_of(p)) {
    const ulong from = (ulong(uint(parent)) * kv.n_kv_heads + head) * dim + i;
    const float value = parent >= 0
                            ? to_float(rounded<T>(x[from]))
                            : to_float(stored.row(before % kv.page_tokens)[i]);
    out[row + i] = value;
  }
}

INSTANCE(previous_rows<float>)
INSTANCE(previous_rows<f16>)
INSTANCE(previous_rows<bf16>)

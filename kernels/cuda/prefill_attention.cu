// Attention of a prompt's chunk on tensor cores: tiles of 64 queries of one head against the pages
// of their sequence.
//
//   q [tokens, n_heads * D], out [tokens, n_heads * D] F32; T is the cache's type, D its head size
//   tiles: up to 64 queries each; *n_tiles of them
//   grid: (n_heads, maximum number of tiles); block 128: four warps of 16 queries
//   dynamic shared: prefill_shared_bytes: the queries, and two tiles of keys and values
//
// All warps share a tile of positions (64, or 32 for D = 256) in shared memory; the next tile is
// copied during the computation. Tiles without visible positions (later, or before the window) are
// not read. The heads of a KV head's group read the same pages at the same time, from the L2 cache.

#include "attention.cuh"

constexpr u32 kPrefillWarps = 4;
template <int D>
constexpr u32 kPrefillTokens = D > 128 ? 32 : 64;

template <class T, int D>
__global__ void __launch_bounds__(kPrefillWarps * 32)
    prefill_attention(AttentionOperands a, PrefillAttention prompts) {
  wait_for_previous_kernel();
  const AttentionArgs& args = a.args;
  typedef typename ComputeType<T>::type C;
  constexpr u32 kTokens = kPrefillTokens<D>, kTile = kTokens * kRowStride<D>;
  DYNAMIC_SHARED(C, q_tile);
  C* kv_tiles = q_tile + kPrefillWarps * kQueryRows * kRowStride<D>;
  if (blockIdx.y >= *prompts.n_tiles) return;
  const QueryTile tile = prompts.tiles[blockIdx.y];
  const u32 head = blockIdx.x, warp = warp_id(), lane = lane_id();
  const SequencePages pages = {a.kv, a.page_tables + u64(tile.sequence) * a.page_stride,
                               head / (args.n_heads / a.kv.n_kv_heads)};

  for (u32 i = 0; i < kQueryRows; ++i) {
    const u32 query = warp * kQueryRows + i;
    const bool valid = query < tile.n_queries;
    const u64 row = u64(tile.first_row + (valid ? query : 0)) * args.n_heads + head;
    load_query<D>(q_tile + query * kRowStride<D>, a.q + row * D, valid);
  }

  // Rows beyond the last query repeat it; they are not stored.
  const u32 last = tile.n_queries - 1, own_query = warp * kQueryRows + lane / 4;
  const Visible visible[2] = {visible_to(min(own_query, last), tile, args),
                              visible_to(min(own_query + 8, last), tile, args)};
  const Visible first_query = visible_to(0, tile, args);
  const Visible last_query = visible_to(last, tile, args);
  const u32 begin = first_query.begin / kTokens * kTokens, end = last_query.end;

  WarpState<D> state;
  state.clear();
  u32 stage = 0;
  load_slice<T, D, kTokens>(kv_tiles, kv_tiles + kTile, pages, begin, end, threadIdx.x,
                            blockDim.x);
  for (u32 first = begin; first < end; first += kTokens) {
    C* now = kv_tiles + stage * 2 * kTile;
    C* next = kv_tiles + (stage ^ 1) * 2 * kTile;
    if (first + kTokens < end) {
      load_slice<T, D, kTokens>(next, next + kTile, pages, first + kTokens, end, threadIdx.x,
                                blockDim.x);
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    __syncthreads();
    attend<D, kTokens>(state, q_tile + warp * kQueryRows * kRowStride<D>, now, now + kTile, first,
                       visible, args);
    __syncthreads();
    stage ^= 1;
  }

  for (u32 r = 0; r < 2; ++r) {
    float total = row_sum(state.total[r]);
    float factor = 1.0f;
    if (args.sinks) {
      const float sink = args.sinks[head], largest = fmaxf(state.largest[r], sink);
      factor = expf(state.largest[r] - largest);
      total = total * factor + expf(sink - largest);
    }
    if (total == 0) total = 1.0f;  // a query that sees nothing gets zeros
    const u32 query = warp * kQueryRows + lane / 4 + 8 * r;
    if (query >= tile.n_queries) continue;
    float* to = a.out + (u64(tile.first_row + query) * args.n_heads + head) * D + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      *reinterpret_cast<float2*>(to + i * 8) = make_float2(
          state.out[i][2 * r] * factor / total, state.out[i][2 * r + 1] * factor / total);
    }
  }
}

INSTANCE(prefill_attention<f16, 16>)
INSTANCE(prefill_attention<f16, 32>)
INSTANCE(prefill_attention<f16, 64>)
INSTANCE(prefill_attention<f16, 80>)
INSTANCE(prefill_attention<f16, 96>)
INSTANCE(prefill_attention<f16, 128>)
INSTANCE(prefill_attention<f16, 256>)
INSTANCE(prefill_attention<bf16, 16>)
INSTANCE(prefill_attention<bf16, 32>)
INSTANCE(prefill_attention<bf16, 64>)
INSTANCE(prefill_attention<bf16, 80>)
INSTANCE(prefill_attention<bf16, 96>)
INSTANCE(prefill_attention<bf16, 128>)
INSTANCE(prefill_attention<bf16, 256>)
INSTANCE(prefill_attention<q8, 16>)
INSTANCE(prefill_attention<q8, 32>)
INSTANCE(prefill_attention<q8, 64>)
INSTANCE(prefill_attention<q8, 80>)
INSTANCE(prefill_attention<q8, 96>)
INSTANCE(prefill_attention<q8, 128>)
INSTANCE(prefill_attention<q8, 256>)
INSTANCE(prefill_attention<q4, 16>)
INSTANCE(prefill_attention<q4, 32>)
INSTANCE(prefill_attention<q4, 64>)
INSTANCE(prefill_attention<q4, 80>)
INSTANCE(prefill_attention<q4, 96>)
INSTANCE(prefill_attention<q4, 128>)
INSTANCE(prefill_attention<q4, 256>)

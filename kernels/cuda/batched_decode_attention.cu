// Attention of a decode step: one launch for a batch of sequences of any lengths.
//
//   q [tokens, n_heads * D] F32; T is the cache's type, D its head size
//   work: for each tile of queries one entry per 256 positions (kSplitTokens) of its sequence
//   partial_out [work, max_queries, n_heads, D], partial_ml [work, max_queries, n_heads, 2]:
//     for each entry the sum of exp(score - m) * value, the m, and the sum of exp(score - m)
//   grid: (maximum number of entries, n_kv_heads * blocks of 16 query rows per KV head)
//   block: four warps (two for D = 256); dynamic shared: decode_shared_bytes
//   moves: the sequence's keys and values once, for all query heads of their KV head
//
// The 16 rows of a tensor-core product are the query heads of one KV head times the queries of the
// tile: 4 to 8 heads with one query each, or up to 16 queries with speculative decoding. The kernel
// is bound by memory, so unused rows cost nothing. Each warp takes every fourth slice of 16
// positions and copies the next slice while it computes. Warps need no barrier until they add up
// their results at the end (split over KV as in Flash-Decoding: T. Dao et al., 2023). Splits have a
// fixed size, so the result of a sequence does not depend on the rest of the batch.
// merge_attention_splits adds up the entries of a tile.

#include "attention.cuh"

constexpr u32 kSliceTokens = 16;
template <int D>
constexpr u32 kDecodeWarps = D > 128 ? 2 : 4;

// Adds up the warps' states and stores the sums of the entry; `shared` is free memory.
template <int D>
DEVICE void store_partial(float* partial_out, float* partial_ml, float* shared,
                          const WarpState<D>& state, HeadRows rows) {
  constexpr u32 kWarps = kDecodeWarps<D>;
  float* outs = shared;                                // [warps][16][D]
  float* largest = outs + kWarps * kQueryRows * D;     // [warps][16]
  float* totals = largest + kWarps * kQueryRows;       // [warps][16]
  const u32 warp = warp_id(), lane = lane_id();
  __syncthreads();
  for (u32 r = 0; r < 2; ++r) {
    const u32 row = warp * kQueryRows + lane / 4 + 8 * r;
    const float total = row_sum(state.total[r]);
    if (lane % 4 == 0) {
      largest[row] = state.largest[r];
      totals[row] = total;
    }
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      *reinterpret_cast<float2*>(outs + row * D + i * 8 + lane % 4 * 2) =
          make_float2(state.out[i][2 * r], state.out[i][2 * r + 1]);
    }
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < rows.count * D; i += blockDim.x) {
    const u32 row = i / D, dim = i % D;
    float most = -FORGE_INFINITY;
    for (u32 w = 0; w < kWarps; ++w) most = fmaxf(most, largest[w * kQueryRows + row]);
    const float base = most == -FORGE_INFINITY ? 0.0f : most;
    float sum = 0, total = 0;
    for (u32 w = 0; w < kWarps; ++w) {
      const u32 at = w * kQueryRows + row;
      const float factor = expf(largest[at] - base);
      sum += outs[at * D + dim] * factor;
      total += totals[at] * factor;
    }
    const u64 to = u64(rows.query(row)) * rows.n_heads + rows.head(row);
    partial_out[to * D + dim] = sum;
    if (dim == 0) {
      partial_ml[to * 2] = most;
      partial_ml[to * 2 + 1] = total;
    }
  }
}

template <class T, int D>
__global__ void __launch_bounds__(kDecodeWarps<D> * 32)
    batched_decode_attention(float* partial_out, float* partial_ml, const float* q, KvCache kv,
                             AttentionArgs args, const QueryTile* tiles,
                             const AttentionWork* work, const u32* n_work,
                             const i32* page_tables, u32 page_stride) {
  wait_for_previous_kernel();
  typedef typename ComputeType<T>::type C;
  constexpr u32 kSlice = kSliceTokens * kRowStride<D>, kWarps = kDecodeWarps<D>;
  DYNAMIC_SHARED(C, q_tile);
  if (blockIdx.x >= *n_work) return;
  const AttentionWork entry = work[blockIdx.x];
  const QueryTile tile = tiles[entry.tile];
  const u32 group = args.n_heads / kv.n_kv_heads, kv_head = blockIdx.y % kv.n_kv_heads;
  const u32 first_row = blockIdx.y / kv.n_kv_heads * kQueryRows;
  if (first_row >= tile.n_queries * group) return;
  const u32 n_rows = min(kQueryRows, tile.n_queries * group - first_row);
  const HeadRows rows = {first_row, n_rows, group, kv_head, args.n_heads};
  const SequencePages pages = {kv, page_tables + u64(tile.sequence) * page_stride, kv_head};
  const u32 warp = warp_id(), lane = lane_id();

  for (u32 i = warp; i < kQueryRows; i += kWarps) {
    const u32 row = i < n_rows ? i : 0;
    const u64 token = tile.first_row + rows.query(row);
    const float* from = q + (token * args.n_heads + rows.head(row)) * D;
    load_query<D>(q_tile + i * kRowStride<D>, from, i < n_rows);
  }
  __syncthreads();

  const u32 last_row = n_rows - 1;
  Visible visible[2];
  for (u32 r = 0; r < 2; ++r) {
    const u32 row = min(lane / 4 + 8 * r, last_row);
    const u32 query = rows.query(row);
    visible[r] = visible_to(query, tile, args);
    if (args.mask) visible[r].mask = args.mask + u64(tile.first_row + query) * args.mask_words;
  }
  const Visible first_query = visible_to(rows.query(0), tile, args);
  const Visible last_query = visible_to(rows.query(last_row), tile, args);
  const u32 split_begin = entry.split * kSplitTokens;
  const u32 begin = max(split_begin, first_query.begin / kSliceTokens * kSliceTokens);
  const u32 end = min(split_begin + kSplitTokens, last_query.end);

  WarpState<D> state;
  state.clear();
  C* slices = q_tile + kQueryRows * kRowStride<D> + warp * 4 * kSlice;
  u32 stage = 0, first = begin + warp * kSliceTokens;
  constexpr u32 kStep = kWarps * kSliceTokens;
  if (first < end) {
    load_slice<T, D, kSliceTokens>(slices, slices + kSlice, pages, first, end, lane, kWarp);
  }
  for (; first < end; first += kStep) {
    C* now = slices + stage * 2 * kSlice;
    C* next = slices + (stage ^ 1) * 2 * kSlice;
    if (first + kStep < end) {
      load_slice<T, D, kSliceTokens>(next, next + kSlice, pages, first + kStep, end, lane, kWarp);
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    __syncwarp();
    attend<D, kSliceTokens>(state, q_tile, now, now + kSlice, first, visible, args);
    __syncwarp();
    stage ^= 1;
  }

  const u64 row = u64(blockIdx.x) * args.max_queries * args.n_heads;
  store_partial<D>(partial_out + row * D, partial_ml + row * 2,
                   reinterpret_cast<float*>(q_tile), state, rows);
}

// out[token, head] = sum of all splits of the tile / their total, sinks included; zeros where a
// mask hides every position.
//   grid: (maximum number of entries, n_heads * max_queries); block 128
KERNEL merge_attention_splits(float* out, const float* partial_out, const float* partial_ml,
                              AttentionArgs args, const QueryTile* tiles,
                              const AttentionWork* work, const u32* n_work, u32 dim) {
  wait_for_previous_kernel();
  if (blockIdx.x >= *n_work) return;
  const AttentionWork entry = work[blockIdx.x];
  const QueryTile tile = tiles[entry.tile];
  const u32 head = blockIdx.y % args.n_heads, query = blockIdx.y / args.n_heads;
  if (entry.split != 0 || query >= tile.n_queries) return;
  const u64 step = u64(args.max_queries) * args.n_heads;
  const u64 first = entry.first_work * step + u64(query) * args.n_heads + head;

  float largest = args.sinks ? args.sinks[head] : -FORGE_INFINITY;
  for (u32 s = 0; s < entry.n_splits; ++s) {
    largest = fmaxf(largest, partial_ml[(first + s * step) * 2]);
  }
  for (u32 i = threadIdx.x; i < dim; i += blockDim.x) {
    float total = args.sinks ? expf(args.sinks[head] - largest) : 0.0f;
    float sum = 0;
    for (u32 s = 0; s < entry.n_splits; ++s) {
      const u64 at = first + s * step;
      const float m = partial_ml[at * 2];
      if (m == -FORGE_INFINITY) continue;  // outside the window, or hidden
      const float factor = expf(m - largest);
      total += partial_ml[at * 2 + 1] * factor;
      sum += partial_out[at * dim + i] * factor;
    }
    out[(u64(tile.first_row + query) * args.n_heads + head) * dim + i] =
        total == 0 ? 0.0f : sum / total;
  }
}

INSTANCE(merge_attention_splits)
INSTANCE(batched_decode_attention<f16, 16>)
INSTANCE(batched_decode_attention<f16, 32>)
INSTANCE(batched_decode_attention<f16, 64>)
INSTANCE(batched_decode_attention<f16, 80>)
INSTANCE(batched_decode_attention<f16, 96>)
INSTANCE(batched_decode_attention<f16, 128>)
INSTANCE(batched_decode_attention<f16, 256>)
INSTANCE(batched_decode_attention<bf16, 16>)
INSTANCE(batched_decode_attention<bf16, 32>)
INSTANCE(batched_decode_attention<bf16, 64>)
INSTANCE(batched_decode_attention<bf16, 80>)
INSTANCE(batched_decode_attention<bf16, 96>)
INSTANCE(batched_decode_attention<bf16, 128>)
INSTANCE(batched_decode_attention<bf16, 256>)
INSTANCE(batched_decode_attention<q8, 16>)
INSTANCE(batched_decode_attention<q8, 32>)
INSTANCE(batched_decode_attention<q8, 64>)
INSTANCE(batched_decode_attention<q8, 80>)
INSTANCE(batched_decode_attention<q8, 96>)
INSTANCE(batched_decode_attention<q8, 128>)
INSTANCE(batched_decode_attention<q8, 256>)

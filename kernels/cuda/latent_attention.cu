// Attention over heads whose values are the first V of the K numbers of their keys, as in latent
// attention (DeepSeek-AI, arXiv:2405.04434): all query heads share a key, so a tile of positions in
// shared memory holds the keys and values of all heads.
//
//   q [tokens, n_heads * K] F32; T is the cache's type
//   decoding: splits as in batched_decode_attention.cu, whose merge_attention_splits adds up the
//     entries of a tile
//   prompts: work is null, n_work counts the tiles, out [tokens, n_heads * V] F32
//   grid: (maximum number of entries or tiles, n_kv_heads * blocks of 32 query rows per KV head)
//   block 256; dynamic shared: latent_shared_bytes, at most 99 KiB, available from SM80 on
//   moves: keys once per 32 query rows
//
// The rows of a block are query heads times queries, as in decoding. For each tile of 16 positions
// the eight warps first divide the scores among themselves (16 rows by 8 positions by half of the
// numbers of a key each), then the rows (online softmax), then the columns of the output, which
// stay in registers. The next tile is copied during all of this.

#include "attention.cuh"

constexpr u32 kWarps = 8;
constexpr u32 kRows = 32;    // query rows per block
constexpr u32 kTokens = 16;  // positions per tile
constexpr u32 kRowTiles = kRows / kQueryRows;
constexpr u32 kHalves = 2;                 // of the numbers of a key
constexpr u32 kWarpRows = kRows / kWarps;  // rows per warp in the softmax
constexpr u32 kLaneRows = kWarpRows * kTokens / kWarp;  // rows per lane in the softmax
// Strides of rows of scores and of exponentials, padded so that neighbours are in different banks.
constexpr u32 kScoreStride = kTokens + 4;
constexpr u32 kWeightStride = kTokens + 8;

// The shared memory of a block besides queries and keys.
template <class C>
struct LatentShared {
  float* scores;   // [kHalves][kRows][kScoreStride]
  C* weights;      // [kRows][kWeightStride]: exponentials of the scores
  float* shrink;   // [kRows]: factor for the previous sums
  float* largest;  // [kRows], like the two below; of all tiles at the end
  float* total;
};

// The page and slot of this lane's row of a tile, that of position first + lane % kTokens.
struct KeyPlace {
  u32 page;
  u32 slot;
};

// Requests the page of a row. Rows past the end take the last position.
DEVICE KeyPlace seek_key(const SequencePages& pages, u32 first, u32 end) {
  const u32 position = min(first + lane_id() % kTokens, end - 1);
  const u32 index = position / pages.kv.page_tokens;
  return {u32(pages.table[index]), position - index * pages.kv.page_tokens};
}

// Starts to copy keys of positions first .. first + kTokens to shared memory; positions from `end`
// on become zeros. The copies form a group, empty for a tile past the end.
template <class T, int K, class C>
DEVICE void load_keys(C* to, const SequencePages& pages, KeyPlace place, u32 first, u32 end) {
  constexpr u32 kUnits = K / 8;
  static_assert(kTokens * kUnits % kWarp == 0, "whole warps copy");
  if (first < end) {
    for (u32 i = threadIdx.x; i < kTokens * kUnits; i += blockDim.x) {
      const u32 token = i / kUnits, unit = i % kUnits;
      const u32 page = __shfl_sync(kAllLanes, place.page, token);
      const u32 slot = __shfl_sync(kAllLanes, place.slot, token);
      copy_unit(to + token * kRowStride<K> + unit * 8, keys_of<T>(pages.kv, page, pages.kv_head),
                slot, unit, first + token < end);
    }
  }
  commit_copies();
}

// 16 rows by 8 positions of scores = q k^T over half of the numbers of a key, for one warp.
template <int K, class C>
DEVICE void multiply_latent_keys(float* scores, const C* q_tile, const C* keys) {
  const u32 lane = lane_id(), half = warp_id() / (kWarps / kHalves);
  const u32 row = warp_id() / (kTokens / 8) % kRowTiles * kQueryRows;
  const u32 token = warp_id() % (kTokens / 8) * 8;
  constexpr u32 kHalf = (K / kHalves + 31) / 32 * 32;
  float sums[4] = {};
#pragma unroll 2
  for (u32 d = half * kHalf; d < min(u32(K), (half + 1) * kHalf); d += 32) {
    u32 b[4];
    load_matrices(b, keys + (token + lane % 8) * kRowStride<K> + d + lane / 8 * 8);
#pragma unroll
    for (u32 part = 0; part < 2; ++part) {
      u32 a[4];
      load_matrices(a, q_tile + (row + lane % 16) * kRowStride<K> + d + part * 16 + lane / 16 * 8);
      multiply_add(C{}, sums, a, b[2 * part], b[2 * part + 1]);
    }
  }
#pragma unroll
  for (u32 r = 0; r < 2; ++r) {
    *reinterpret_cast<float2*>(scores + (half * kRows + row + lane / 4 + 8 * r) * kScoreStride +
                               token + lane % 4 * 2) = make_float2(sums[2 * r], sums[2 * r + 1]);
  }
}

// The row of the softmax that this lane has a position of.
DEVICE u32 softmax_row(u32 r) {
  return warp_id() * kWarpRows + r * (kWarp / kTokens) + lane_id() / kTokens;
}

// The softmax of kLaneRows rows, one position per lane.
struct RowSoftmax {
  float largest[kLaneRows];
  float total[kLaneRows];

  template <class C>
  DEVICE_MEMBER void add(const LatentShared<C>& shared, const Visible (&visible)[kLaneRows],
                         u32 first, const AttentionArgs& args) {
    constexpr float kLog2E = 1.4426950408889634f;
    const u32 token = lane_id() % kTokens;
#pragma unroll
    for (u32 r = 0; r < kLaneRows; ++r) {
      const u32 row = softmax_row(r);
      const float* own = shared.scores + row * kScoreStride + token;
      float score = (own[0] + own[kRows * kScoreStride]) * args.scale;
      if (args.softcap > 0) score = args.softcap * tanhf(score / args.softcap);
      score = visible[r].shown(score, first + token);
      float most = score;
#pragma unroll
      for (u32 bits = kTokens / 2; bits > 0; bits /= 2) {
        most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, bits));
      }
      most = fmaxf(largest[r], most);
      // A row without visible positions so far keeps zeros; its exponents are relative to 0.
      const float base = most == -FORGE_INFINITY ? 0.0f : most;
      const float weight = fast_exp2((score - base) * kLog2E);
      const float shrink = fast_exp2((largest[r] - base) * kLog2E);
      float sum = weight;
#pragma unroll
      for (u32 bits = kTokens / 2; bits > 0; bits /= 2) {
        sum += __shfl_xor_sync(kAllLanes, sum, bits);
      }
      largest[r] = most;
      total[r] = total[r] * shrink + sum;
      convert(weight, shared.weights[row * kWeightStride + token]);
      if (token == 0) shared.shrink[row] = shrink;
    }
  }
};

// Adds the product of a tile's weights and values to a warp's V / kWarps columns of all rows.
template <int K, int V, class C>
DEVICE void multiply_latent_values(float (&out)[kRowTiles][V / kWarps / 8][4], const C* keys,
                                   const LatentShared<C>& shared) {
  const u32 lane = lane_id();
  const C* values = keys + warp_id() * (V / kWarps);
#pragma unroll
  for (u32 t = 0; t < kRowTiles; ++t) {
    const float low = shared.shrink[t * kQueryRows + lane / 4];
    const float high = shared.shrink[t * kQueryRows + lane / 4 + 8];
    if (__ballot_sync(kAllLanes, low != 1.0f || high != 1.0f) == 0) continue;
#pragma unroll
    for (u32 i = 0; i < V / kWarps / 8; ++i) {
      out[t][i][0] *= low;
      out[t][i][1] *= low;
      out[t][i][2] *= high;
      out[t][i][3] *= high;
    }
  }
  u32 a[kRowTiles][4];
#pragma unroll
  for (u32 t = 0; t < kRowTiles; ++t) {
    const u32 row = t * kQueryRows + lane % 16;
    load_matrices(a[t], shared.weights + row * kWeightStride + lane / 16 * 8);
  }
#pragma unroll
  for (u32 d = 0; d < V / kWarps; d += 16) {
    u32 b[4];
    const u32 token = lane / 8 % 2 * 8 + lane % 8;
    load_matrices_transposed(b, values + token * kRowStride<K> + d + lane / 16 * 8);
#pragma unroll
    for (u32 t = 0; t < kRowTiles; ++t) {
      multiply_add(C{}, out[t][d / 8], a[t], b[0], b[1]);
      multiply_add(C{}, out[t][d / 8 + 1], a[t], b[2], b[3]);
    }
  }
}

template <class T, int K, int V>
__global__ void __launch_bounds__(kWarps * 32)
    latent_attention(AttentionOperands a, LatentAttention l) {
  wait_for_previous_kernel();
  const KvCache& kv = a.kv;
  const AttentionArgs& args = a.args;
  const AttentionWork* work = l.splits.work;
  typedef typename ComputeType<T>::type C;
  DYNAMIC_SHARED(C, q_tile);
  C* keys = q_tile + kRows * kRowStride<K>;
  LatentShared<C> shared;
  shared.weights = keys + 2 * kTokens * kRowStride<K>;
  shared.scores = reinterpret_cast<float*>(shared.weights + kRows * kWeightStride);
  shared.shrink = shared.scores + kHalves * kRows * kScoreStride;
  shared.largest = shared.shrink + kRows;
  shared.total = shared.largest + kRows;
  if (blockIdx.x >= *l.n_work) return;
  u32 split = 0, split_tokens = 0;
  QueryTile tile;
  if (work) {
    const AttentionWork entry = work[blockIdx.x];
    tile = entry.tile;
    split = entry.split;
    split_tokens = entry.split_tokens;
  } else {
    tile = l.tiles[blockIdx.x];
  }
  const u32 group = args.n_heads / kv.n_kv_heads, kv_head = blockIdx.y % kv.n_kv_heads;
  const u32 first_row = blockIdx.y / kv.n_kv_heads * kRows;
  if (first_row >= tile.n_queries * group) return;
  const u32 n_rows = min(kRows, tile.n_queries * group - first_row), last_row = n_rows - 1;
  const HeadRows rows = {first_row, n_rows, group, kv_head, args.n_heads};
  const SequencePages pages = {kv, a.page_tables + u64(tile.sequence) * a.page_stride, kv_head};

  const u32 seen_begin = visible_to(rows.query(0), tile, args).begin;
  const u32 seen_end = visible_to(rows.query(last_row), tile, args).end;
  const u32 begin = max(split * split_tokens, seen_begin / kTokens * kTokens);
  const u32 end = work ? min((split + 1) * split_tokens, seen_end) : seen_end;
  // The first tile is on its way while queries are loaded.
  KeyPlace place = {};
  if (begin < end) {
    load_keys<T, K>(keys, pages, seek_key(pages, begin, end), begin, end);
    place = seek_key(pages, begin + kTokens, end);
  }

  for (u32 row = warp_id(); row < kRows; row += kWarps) {
    const u32 seen = min(row, last_row);
    const u64 token = tile.first_row + rows.query(seen);
    load_query<K>(q_tile + row * kRowStride<K>,
                  a.q + (token * args.n_heads + rows.head(seen)) * K, row < n_rows);
  }
  RowSoftmax softmax;
  const auto limits = [&](u32 r) {
    return visible_to(rows.query(min(softmax_row(r), last_row)), tile, args);
  };
  for (u32 r = 0; r < kLaneRows; ++r) {
    softmax.largest[r] = -FORGE_INFINITY;
    softmax.total[r] = 0;
  }
  static_assert(kLaneRows == 2);
  const Visible visible[kLaneRows] = {limits(0), limits(1)};

  float sums[kRowTiles][V / kWarps / 8][4] = {};
  for (u32 first = begin, stage = 0; first < end; first += kTokens, stage ^= 1) {
    // The tile has arrived, and no warp reads the one before it any more.
    wait_copies<0>();
    __syncthreads();
    const C* now = keys + stage * kTokens * kRowStride<K>;
    load_keys<T, K>(keys + (stage ^ 1) * kTokens * kRowStride<K>, pages, place, first + kTokens,
                    end);
    place = seek_key(pages, first + 2 * kTokens, end);
    multiply_latent_keys<K>(shared.scores, q_tile, now);
    __syncthreads();
    softmax.add(shared, visible, first, args);
    __syncthreads();
    multiply_latent_values<K, V>(sums, now, shared);
  }
  wait_copies<0>();

  for (u32 r = 0; r < kLaneRows; ++r) {
    const u32 row = softmax_row(r);
    if (lane_id() % kTokens != 0) continue;
    shared.largest[row] = softmax.largest[r];
    shared.total[row] = softmax.total[r];
  }
  __syncthreads();
  const u32 lane = lane_id(), column = warp_id() * (V / kWarps) + lane % 4 * 2;
#pragma unroll
  for (u32 t = 0; t < kRowTiles; ++t) {
#pragma unroll
    for (u32 r = 0; r < 2; ++r) {
      const u32 row = t * kQueryRows + lane / 4 + 8 * r;
      if (row >= n_rows) continue;
      const u32 head = rows.head(row);
      const float largest = shared.largest[row], total = shared.total[row];
      float* to;
      float factor = 1.0f;
      if (work) {
        const u64 at = (u64(blockIdx.x) * args.max_queries + rows.query(row)) * args.n_heads + head;
        to = l.splits.out + at * V;
        if (column == 0) {
          l.splits.ml[at * 2] = largest;
          l.splits.ml[at * 2 + 1] = total;
        }
      } else {
        to = a.out + (u64(tile.first_row + rows.query(row)) * args.n_heads + head) * V;
        if (args.sinks) {
          const float most = fmaxf(largest, args.sinks[head]);
          factor = expf(largest - most) /
                   (total * expf(largest - most) + expf(args.sinks[head] - most));
        } else {
          factor = total == 0 ? 0.0f : 1.0f / total;
        }
      }
#pragma unroll
      for (u32 i = 0; i < V / kWarps / 8; ++i) {
        *reinterpret_cast<float2*>(to + column + i * 8) =
            make_float2(sums[t][i][2 * r] * factor, sums[t][i][2 * r + 1] * factor);
      }
    }
  }
}

INSTANCE(latent_attention<f16, 288, 256>)
INSTANCE(latent_attention<f16, 576, 512>)
INSTANCE(latent_attention<bf16, 288, 256>)
INSTANCE(latent_attention<bf16, 576, 512>)
INSTANCE(latent_attention<q8, 288, 256>)
INSTANCE(latent_attention<q8, 576, 512>)
INSTANCE(latent_attention<q4, 288, 256>)
INSTANCE(latent_attention<q4, 576, 512>)

#pragma once

// Shared by the attention kernels on tensor cores: 16 queries of a warp against a slice of keys and
// values in shared memory, with an online softmax.
//
// The method is FlashAttention-2 (T. Dao, 2023). A warp holds 16 rows of output in registers, as
// the accumulators of multiply_add. The tensor cores leave the scores of a slice in the layout of
// their left operand, so the exponentials need no shuffle before the product with the values. Sums
// are F32; queries, keys, values and probabilities are 16-bit.

#include "kv.cuh"
#include "ptx.cuh"

constexpr u32 kQueryRows = 16;      // per warp
constexpr u32 kSplitTokens = 256;   // positions per block when decoding

// Consecutive query rows of one sequence, at consecutive positions. The sequence has keys and
// values at positions 0 .. end - 1.
struct QueryTile {
  u32 first_row;
  u32 n_queries;
  u32 sequence;
  u32 first_position;
  u32 end;
};

// A range of the positions visible to a tile of decoded queries.
struct AttentionWork {
  u32 tile;
  u32 split;       // starts at position split * kSplitTokens
  u32 first_work;  // index of the tile's entry for split 0
  u32 n_splits;
};

struct AttentionArgs {
  const float* sinks;  // [n_heads] logits without a value, or null
  // For decode attention: [tokens, mask_words], or null. Bit i % 32 of word i / 32 makes position i
  // visible, within the limits of causality, the window and the sequence's end.
  const u32* mask;
  float scale;
  float softcap;       // 0: none
  u32 n_heads;
  u32 window;          // 0: all positions
  u32 causal;          // 0: every query sees all `end` positions
  u32 max_queries;     // per tile
  u32 mask_words;
};

// The type that tensor cores read for a cache of T.
template <class T>
struct ComputeType {
  typedef T type;
};
template <>
struct ComputeType<q8> {
  typedef f16 type;
};

// A row in shared memory is padded by 16 bytes, so that the eight rows that ldmatrix reads at once
// begin in different banks.
template <int D>
constexpr u32 kRowStride = D + 8;

// The positions visible to one query.
struct Visible {
  u32 begin;
  u32 end;
  const u32* mask = nullptr;

  DEVICE_MEMBER bool has(u32 position) const {
    if (position < begin || position >= end) return false;
    return !mask || (mask[position / 32] >> position % 32 & 1) != 0;
  }
};
// `query` is counted from the first query of the tile.
DEVICE Visible visible_to(u32 query, const QueryTile& tile, const AttentionArgs& a) {
  const u32 position = tile.first_position + query;
  const u32 end = a.causal ? min(position + 1, tile.end) : tile.end;
  return {a.window > 0 && position + 1 > a.window ? position + 1 - a.window : 0, end};
}

// The rows of a block: query heads of one KV head times the queries of a tile.
struct HeadRows {
  u32 first;  // index of the block's first row in the tile
  u32 count;
  u32 group;  // query heads per KV head
  u32 kv_head;
  u32 n_heads;

  DEVICE_MEMBER u32 query(u32 row) const { return (first + row) / group; }
  DEVICE_MEMBER u32 head(u32 row) const { return kv_head * group + (first + row) % group; }
};

// Copies 8 numbers of a cache row to to[] as 16 bytes.
template <class T>
DEVICE void copy_unit(T* to, const KvRows<T>& rows, u32 slot, u32 unit, bool valid) {
  copy_async_16(to, valid ? rows.row(slot) + unit * 8 : rows.row(0), valid);
}
DEVICE void copy_unit(f16* to, const KvRows<q8>& rows, u32 slot, u32 unit, bool valid) {
  uint2 bytes = make_uint2(0, 0);
  float scale = 0;
  if (valid) {
    bytes = *reinterpret_cast<const uint2*>(rows.row(slot) + unit * 8);
    scale = to_float(rows.row_scales(slot)[unit * 8 / kScaleGroup]);
  }
  const float4 low = bytes_to_floats(bytes.x ^ 0x80808080u, 128.0f);
  const float4 high = bytes_to_floats(bytes.y ^ 0x80808080u, 128.0f);
  *reinterpret_cast<uint4*>(to) = make_uint4(
      pack_as(f16{}, low.x * scale, low.y * scale), pack_as(f16{}, low.z * scale, low.w * scale),
      pack_as(f16{}, high.x * scale, high.y * scale),
      pack_as(f16{}, high.z * scale, high.w * scale));
}

// Locates the pages of a sequence.
struct SequencePages {
  KvCache kv;
  const i32* table;
  u32 kv_head;
};

// Copies the keys and values of positions first .. first + tokens to shared memory, with thread
// `thread` of `threads`. Positions from `end` on become zeros.
template <class T, int D, u32 tokens, class C>
DEVICE void load_slice(C* k_tile, C* v_tile, const SequencePages& pages, u32 first, u32 end,
                       u32 thread, u32 threads) {
  constexpr u32 kUnits = D / 8;
  for (u32 i = thread; i < tokens * kUnits; i += threads) {
    const u32 token = i / kUnits, unit = i % kUnits, position = first + token;
    const bool valid = position < end;
    const u32 seen = valid ? position : end - 1;
    const u32 page = u32(pages.table[seen / pages.kv.page_tokens]);
    const u32 slot = seen % pages.kv.page_tokens;
    C* k = k_tile + token * kRowStride<D> + unit * 8;
    C* v = v_tile + token * kRowStride<D> + unit * 8;
    copy_unit(k, keys_of<T>(pages.kv, page, pages.kv_head), slot, unit, valid);
    copy_unit(v, values_of<T>(pages.kv, page, pages.kv_head), slot, unit, valid);
  }
  commit_copies();
}

// Copies one row of queries as C, or zeros. Called by a whole warp.
template <int D, class C>
DEVICE void load_query(C* to, const float* q, bool valid) {
  for (u32 i = lane_id() * 2; i < D; i += 2 * kWarp) {
    const float low = valid ? q[i] : 0.0f, high = valid ? q[i + 1] : 0.0f;
    *reinterpret_cast<u32*>(to + i) = pack_as(C{}, low, high);
  }
}

// The output of 16 query rows so far, in the accumulator layout of multiply_add: a lane holds rows
// g = lane / 4 and g + 8.
template <int D>
struct WarpState {
  float out[D / 8][4];
  float largest[2];  // largest score of the row so far
  float total[2];    // this lane's part of the sum of exp(score - largest)

  DEVICE_MEMBER void clear() {
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      for (int e = 0; e < 4; ++e) out[i][e] = 0;
    }
    largest[0] = largest[1] = -FORGE_INFINITY;
    total[0] = total[1] = 0;
  }
};

// Maximum over the four lanes that share a row.
DEVICE float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
DEVICE float row_sum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

// scores[16, tokens] = q k^T.
template <int D, u32 tokens, class C>
DEVICE void multiply_keys(float (&scores)[tokens / 8][4], const C* q_tile, const C* k_tile) {
  const u32 lane = lane_id();
#pragma unroll
  for (u32 n = 0; n < tokens / 8; ++n) {
    for (u32 e = 0; e < 4; ++e) scores[n][e] = 0;
  }
#pragma unroll
  for (u32 d = 0; d < D; d += 16) {
    u32 a[4];
    load_matrices(a, q_tile + lane % 16 * kRowStride<D> + d + lane / 16 * 8);
#pragma unroll
    for (u32 n = 0; n < tokens / 16; ++n) {
      u32 b[4];
      const u32 token = n * 16 + lane / 16 * 8 + lane % 8;
      load_matrices(b, k_tile + token * kRowStride<D> + d + lane / 8 % 2 * 8);
      multiply_add(C{}, scores[2 * n], a, b[0], b[1]);
      multiply_add(C{}, scores[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// Adds positions first .. first + tokens to the state of 16 queries. visible[0] and visible[1] are
// the visible positions of this lane's two rows.
template <int D, u32 tokens, class C>
DEVICE void attend(WarpState<D>& state, const C* q_tile, const C* k_tile, const C* v_tile,
                   u32 first, const Visible (&visible)[2], const AttentionArgs& args) {
  constexpr float kLog2E = 1.4426950408889634f;
  const u32 lane = lane_id();
  float scores[tokens / 8][4];
  multiply_keys<D, tokens>(scores, q_tile, k_tile);

  float largest[2] = {state.largest[0], state.largest[1]};
#pragma unroll
  for (u32 n = 0; n < tokens / 8; ++n) {
#pragma unroll
    for (u32 e = 0; e < 4; ++e) {
      const u32 position = first + n * 8 + lane % 4 * 2 + e % 2;
      float score = scores[n][e] * args.scale;
      if (args.softcap > 0) score = args.softcap * tanhf(score / args.softcap);
      scores[n][e] = visible[e / 2].has(position) ? score : -FORGE_INFINITY;
      largest[e / 2] = fmaxf(largest[e / 2], scores[n][e]);
    }
  }
#pragma unroll
  for (u32 r = 0; r < 2; ++r) {
    largest[r] = row_max(largest[r]);
    // A row without visible positions so far keeps zeros; its exponents are relative to 0.
    const float base = largest[r] == -FORGE_INFINITY ? 0.0f : largest[r];
    const float shrink = exp2f((state.largest[r] - base) * kLog2E);
    state.largest[r] = largest[r];
    float sum = 0;
#pragma unroll
    for (u32 n = 0; n < tokens / 8; ++n) {
      for (u32 e = 2 * r; e < 2 * r + 2; ++e) {
        scores[n][e] = exp2f((scores[n][e] - base) * kLog2E);
        sum += scores[n][e];
      }
    }
    state.total[r] = state.total[r] * shrink + sum;
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      state.out[i][2 * r] *= shrink;
      state.out[i][2 * r + 1] *= shrink;
    }
  }

#pragma unroll
  for (u32 n = 0; n < tokens / 16; ++n) {
    const float* low = scores[2 * n];
    const float* high = scores[2 * n + 1];
    const u32 p[4] = {pack_as(C{}, low[0], low[1]), pack_as(C{}, low[2], low[3]),
                      pack_as(C{}, high[0], high[1]), pack_as(C{}, high[2], high[3])};
#pragma unroll
    for (u32 d = 0; d < D; d += 16) {
      u32 b[4];
      const u32 token = n * 16 + lane / 8 % 2 * 8 + lane % 8;
      load_matrices_transposed(b, v_tile + token * kRowStride<D> + d + lane / 16 * 8);
      multiply_add(C{}, state.out[d / 8], p, b[0], b[1]);
      multiply_add(C{}, state.out[d / 8 + 1], p, b[2], b[3]);
    }
  }
}

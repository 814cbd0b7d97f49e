#pragma once

// Shared by the attention kernels on tensor cores: 16 queries of a warp against a slice of keys and
// values in shared memory, with an online softmax.
//
// The method is FlashAttention-2 (T. Dao, 2023). A warp holds 16 rows of output in registers, as
// the accumulators of multiply_add. The tensor cores leave the scores of a slice in the layout of
// their left operand, so the exponentials need no shuffle before the product with the values. Sums
// are F32; queries, keys, values and probabilities are 16-bit.

#include "kv.cuh"
#include "visible.cuh"
#include "ptx.cuh"

constexpr u32 kQueryRows = 16;  // per warp

// The type that tensor cores read for a cache of T.
template <class T>
struct ComputeType {
  typedef T type;
};
template <>
struct ComputeType<q8> {
  typedef f16 type;
};
template <>
struct ComputeType<q4> {
  typedef f16 type;
};

// Returns eight numbers of a Q4_0 cache as F16, times a scale in both halves of a word.
DEVICE uint4 scale_fours(u32 word, u32 scales) {
  constexpr u32 kTwice1024 = 0x64006400u, kTwice1032 = 0x64086408u, kPair = 0x000f000fu;
  const auto pair = [&](u32 shift) {
    return multiply_halves(
        subtract_halves(and_or(word >> shift, kPair, kTwice1024), kTwice1032), scales);
  };
  return make_uint4(pair(0), pair(4), pair(8), pair(12));
}

// A row in shared memory is padded by 16 bytes, so that the eight rows that ldmatrix reads at once
// begin in different banks.
template <int D>
constexpr u32 kRowStride = D + 8;

// `query` is counted from the first query of the tile.
DEVICE Visible visible_to(u32 query, const QueryTile& tile, const AttentionArgs& a) {
  return visible_from(tile.first_position + query, tile.n_keys, a);
}

// The rows of a block: query heads of one KV head times the queries of a tile.
struct HeadRows {
  u32 first;  // index of the block's first row in the tile
  u32 count;
  u32 group;  // query heads per KV head
  u32 kv_head;
  u32 n_heads;
  float of_group = __frcp_rn(float(group));

  // Exact, as rows are fewer than 2^21, and a quarter of the instructions of a division.
  DEVICE_MEMBER u32 query(u32 row) const { return u32((float(first + row) + 0.5f) * of_group); }
  DEVICE_MEMBER u32 head(u32 row) const {
    return kv_head * group + first + row - query(row) * group;
  }
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
DEVICE void copy_unit(f16* to, const KvRows<q4>& rows, u32 slot, u32 unit, bool valid) {
  u32 word = 0, scale = 0;
  if (valid) {
    word = reinterpret_cast<const u32*>(rows.row(slot))[unit];
    scale = reinterpret_cast<const u16*>(rows.row_scales(slot))[unit * 8 / kScaleGroup];
  }
  *reinterpret_cast<uint4*>(to) = scale_fours(word, scale | scale << 16);
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

// Adds the scores of positions first .. first + tokens to the state of 16 queries, and turns them
// into exponentials relative to the largest score of each row. visible[0] and visible[1] are the
// visible positions of this lane's two rows. Without `both`, rows from 8 on are unused.
template <int D, u32 tokens, class Limits>
DEVICE void weigh_scores(WarpState<D>& state, float (&scores)[tokens / 8][4], u32 first,
                         const Limits (&visible)[2], const AttentionArgs& args, bool both) {
  constexpr float kLog2E = 1.4426950408889634f;
#pragma unroll
  for (u32 r = 0; r < 2; ++r) {
    if (r == 1 && !both) {
#pragma unroll
      for (u32 n = 0; n < tokens / 8; ++n) scores[n][2] = scores[n][3] = 0;
      break;
    }
    float largest = state.largest[r];
#pragma unroll
    for (u32 n = 0; n < tokens / 8; ++n) {
#pragma unroll
      for (u32 e = 2 * r; e < 2 * r + 2; ++e) {
        const u32 position = first + n * 8 + lane_id() % 4 * 2 + e % 2;
        float score = scores[n][e] * args.scale;
        if (args.softcap > 0) score = args.softcap * tanhf(score / args.softcap);
        scores[n][e] = visible[r].shown(score, position);
        largest = fmaxf(largest, scores[n][e]);
      }
    }
    largest = row_max(largest);
    // A row without visible positions so far keeps zeros; its exponents are relative to 0.
    const float base = largest == -FORGE_INFINITY ? 0.0f : largest;
    const float shrink = fast_exp2((state.largest[r] - base) * kLog2E);
    state.largest[r] = largest;
    float sum = 0;
#pragma unroll
    for (u32 n = 0; n < tokens / 8; ++n) {
#pragma unroll
      for (u32 e = 2 * r; e < 2 * r + 2; ++e) {
        scores[n][e] = fast_exp2((scores[n][e] - base) * kLog2E);
        sum += scores[n][e];
      }
    }
    state.total[r] = state.total[r] * shrink + sum;
    // The largest score of a row rarely changes after the first slices.
    if (__ballot_sync(kAllLanes, shrink != 1.0f) == 0) continue;
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      state.out[i][2 * r] *= shrink;
      state.out[i][2 * r + 1] *= shrink;
    }
  }
}

// out += weights [16, tokens] values.
template <int D, u32 tokens, class C>
DEVICE void add_values(WarpState<D>& state, const float (&weights)[tokens / 8][4],
                       const C* v_tile) {
  const u32 lane = lane_id();
#pragma unroll
  for (u32 n = 0; n < tokens / 16; ++n) {
    const float* low = weights[2 * n];
    const float* high = weights[2 * n + 1];
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

// Adds positions first .. first + tokens to the state of 16 queries.
template <int D, u32 tokens, class C, class Limits>
DEVICE void attend(WarpState<D>& state, const C* q_tile, const C* k_tile, const C* v_tile,
                   u32 first, const Limits (&visible)[2], const AttentionArgs& args,
                   bool both = true) {
  float scores[tokens / 8][4];
  multiply_keys<D, tokens>(scores, q_tile, k_tile);
  weigh_scores<D, tokens>(state, scores, first, visible, args, both);
  add_values<D, tokens>(state, scores, v_tile);
}

// A softmax over all positions of a row: the sum of exp(score - largest) * value for four columns,
// and the sum of exp(score - largest).
struct RowSum {
  float4 out;
  float total;
  float largest;

  DEVICE_MEMBER void add(float4 values, float factor) {
    out.x += values.x * factor;
    out.y += values.y * factor;
    out.z += values.z * factor;
    out.w += values.w * factor;
  }
  // Four columns of the result; zeros where every position was hidden. `sink` may be null.
  DEVICE_MEMBER float4 result(const float* sink) const {
    float factor = 1.0f, all = total;
    if (sink) {
      const float most = fmaxf(largest, *sink);
      factor = expf(largest - most);
      all = total * factor + expf(*sink - most);
    }
    if (all != 0) factor /= all;
    return make_float4(out.x * factor, out.y * factor, out.z * factor, out.w * factor);
  }
};

// Number of parts whose sums a lane requests before it adds the first.
constexpr u32 kMergeBatch = 8;

// Columns 4 * lane .. 4 * lane + 3, from `column` on, of the result of one row of queries, of which
// the entries of a tile have computed parts. Called by a warp. A part is `stride` rows after the
// previous one. `parts` and `ml` are the row of the first: sums, and pairs of the largest score and
// the total. Loads do not wait for each other: hidden parts have a factor of 0.
DEVICE RowSum merge_parts(const float* parts, const float* ml, u64 stride, u32 n_parts, u32 column,
                          u32 dim) {
  const u32 lane = lane_id(), from = min(column + 4 * lane, dim - 4), last = n_parts - 1;
  float4 values[kMergeBatch];
  const auto load_batch = [&](u32 first) {
#pragma unroll
    for (u32 i = 0; i < kMergeBatch; ++i) {
      const u64 row = min(first + i, last) * stride;
      values[i] = *reinterpret_cast<const float4*>(parts + row * dim + from);
    }
  };
  const auto load_ml = [&](u32 part) {
    return *reinterpret_cast<const float2*>(ml + min(part, last) * stride * 2);
  };
  float2 own_ml = load_ml(lane);
  load_batch(0);
  RowSum sum = {make_float4(0, 0, 0, 0), 0, own_ml.x};
#pragma unroll 1
  for (u32 part = lane + kWarp; part < n_parts; part += kWarp) {
    sum.largest = fmaxf(sum.largest, load_ml(part).x);
  }
  sum.largest = warp_max(sum.largest);
  const float base = sum.largest == -FORGE_INFINITY ? 0.0f : sum.largest;
#pragma unroll 1
  for (u32 first = 0; first < n_parts; first += kWarp) {
    const u32 own = first + lane;
    if (first > 0) own_ml = load_ml(own);
    const float own_factor = own < n_parts ? expf(own_ml.x - base) : 0.0f;
    sum.total += own_ml.y * own_factor;
#pragma unroll 1
    for (u32 part = 0; part < min(kWarp, n_parts - first); part += kMergeBatch) {
      if (first + part > 0) load_batch(first + part);
#pragma unroll
      for (u32 i = 0; i < kMergeBatch; ++i) {
        sum.add(values[i], __shfl_sync(kAllLanes, own_factor, part + i));
      }
    }
  }
  sum.total = warp_sum(sum.total);
  return sum;
}

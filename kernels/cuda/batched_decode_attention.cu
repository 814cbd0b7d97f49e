// Attention of a decode step: one launch for a batch of sequences of any lengths.
//
//   q [tokens, n_heads * D], out [tokens, n_heads * D] F32; T is the cache's type, D its head size
//   work: for each tile of queries one entry per split of the positions that it sees
//   splits: for each entry of several the sum of exp(score - m) * value, the m, the sum of
//     exp(score - m)
//   arrivals [work, blocks of 16 query rows, n_kv_heads]: all 0, before and after
//   grid: (maximum number of entries, n_kv_heads, blocks of 16 query rows per KV head)
//   block: four warps (two for D = 256); dynamic shared: decode_shared_bytes
//   moves: the sequence's keys and values once, for all query heads of their KV head
//
// The 16 rows of a tensor-core product are the query heads of one KV head times the queries of the
// tile: 4 to 8 heads with one query each, or up to 16 queries with speculative decoding. The kernel
// is bound by memory, so unused rows cost nothing. Each warp takes every fourth slice of positions
// and copies the next slices while it computes. Warps need no barrier until they add up their
// results at the end (split over KV as in Flash-Decoding: T. Dao et al., 2023). The block that
// completes a tile adds up its splits. The size of splits depends on a query's position alone, so
// the result does not depend on the rest of the batch.
//
// Three loads depend on each other before the first key arrives: the entry, the page, the key. The
// page of a slice is requested a slice ahead, and its address is computed once per row.
//
// rope_decode_attention also does the work of rope_append, where each token is the only one of its
// sequence and its pages are no other's. The warp whose slice has the token's position prepares its
// key and value, into the page and, if the slice is already being copied, into shared memory: its
// row is left out of the copy. All other warps prepare queries. Both take less time than the first
// keys take to arrive from memory.

#include "appended_rows.cuh"
#include "attention.cuh"

template <class T, int D>
struct DecodeShape {
  typedef typename ComputeType<T>::type C;
  static constexpr bool is_scaled = sizeof(T) == 1, is_q4 = KvBytes<T>::of(kScaleGroup) == 16;
  static constexpr u32 kWarps = D > 128 ? 2 : 4;
  // Positions of a warp's slice, so that a slice of F16 keys and values is at least 8 KiB from
  // D = 64 on.
  static constexpr u32 kTokens = D <= 64 ? 32 : 16;
  static constexpr u32 kStep = kWarps * kTokens;
  // Slices in shared memory: one in use, the others in flight.
  static constexpr u32 kStages = is_q4 ? 5 : is_scaled ? 3 : 2;
  static constexpr u32 kRowBytes = KvBytes<T>::of(D);
  static constexpr u32 kScales = (D + kScaleGroup - 1) / kScaleGroup;
  // Bytes in shared memory from row to row; rows with scales are read in order, without padding.
  static constexpr u32 kStride = is_scaled ? kRowBytes : kRowStride<D> * 2;
  static constexpr u32 kStageBytes = 2 * kTokens * kStride;
  // With scales: a tile of keys, later of values, as F16, and the scales of keys and values.
  static constexpr u32 kTileBytes = is_scaled ? kTokens * kRowStride<D> * 2 : 0;
  static constexpr u32 kScaleBytes = is_scaled ? 2 * kTokens * kScales * 2 : 0;
  static constexpr u32 kWarpBytes = kStages * kStageBytes + kTileBytes + kScaleBytes;
};

// All fields are requested together.
DEVICE AttentionWork load_entry(const AttentionWork* from) {
  const QueryTile& tile = from->tile;
  return {{load_now(&tile.first_row), load_now(&tile.n_queries), load_now(&tile.sequence),
           load_now(&tile.first_position), load_now(&tile.n_keys)},
          load_now(&from->split),
          load_now(&from->split_tokens),
          load_now(&from->n_splits)};
}

// The positions that an entry of work reads: those of its split that its queries see.
//
// Of a long sequence, a window is small against a split. So that all entries share the window, its
// operations divide the sequence into `size` positions, few enough for the window to touch no more
// pieces than there are entries, and deal the pieces out in turn. As for splits, the piece of a
// position depends on the length of its sequence alone.
struct PositionRange {
  u32 begin;
  u32 end;
};
DEVICE PositionRange range_of(const AttentionWork& entry, u32 first_visible,
                              const AttentionArgs& args) {
  constexpr u32 kMostQueries = 16, kUnit = 64, kLeast = 256;
  u32 size = entry.split_tokens, piece = entry.split;
  if (args.window > 0 && args.window < size && entry.n_splits > 2) {
    const u32 span = (args.causal ? 1 : 2) * args.window + kMostQueries;
    const u32 most = entry.n_splits - 2;  // a span begins and ends inside of a piece
    size = min(size, max(kLeast, round_up((span + most - 1) / most, kUnit)));
    const u32 seen = first_visible / size;
    piece = seen + (entry.split + entry.n_splits - seen % entry.n_splits) % entry.n_splits;
  }
  return {piece * size, (piece + 1) * size};
}

// The number of a position's page. The engine's pages have a power of two of positions, which takes
// few instructions.
DEVICE u32 page_index(u32 position, u32 page_tokens) {
  if ((page_tokens & (page_tokens - 1)) == 0) return position >> (__ffs(page_tokens) - 1);
  return position / page_tokens;
}

// The place of this lane's row of a slice of positions, that of position first + lane % kTokens.
struct RowPlace {
  u32 first;  // of the slice
  u32 page;
  u32 slot;
};

// The keys and values of a sequence's KV head, read slice by slice by a warp.
template <class T, int D>
struct SliceReader {
  typedef DecodeShape<T, D> Shape;
  const KvCache& kv;
  const i32* table;
  u64 head;  // byte offset in a page
  u32 end;   // end of the range of positions

  // Requests the page of a row. Rows past the end take the last position.
  DEVICE_MEMBER RowPlace seek(u32 first) const {
    const u32 position = min(first + lane_id() % Shape::kTokens, end - 1);
    const u32 index = page_index(position, kv.page_tokens);
    return {first, u32(table[index]), position - index * kv.page_tokens};
  }

  // Starts to copy a slice to `to`: rows of keys, then of values. Positions from `end` on become
  // zeros. The copies form a group, empty for a slice past the end. Unless `all`, the position
  // `without` is left out.
  template <bool all = true>
  DEVICE_MEMBER void copy(u8* to, RowPlace place, u32 without = 0) const {
    constexpr u32 kUnits = Shape::kRowBytes / 16, kAll = Shape::kTokens * kUnits;
    if (place.first < end) {
      const u64 own = place.page * kv.page_bytes + head + u64(place.slot) * Shape::kRowBytes;
      // Copies unit 32 n + lane from key_of(n) and value_of(n).
      const auto copy_units = [&](auto key_of, auto value_of) {
#pragma unroll
        for (u32 n = 0; n < (kAll + kWarp - 1) / kWarp; ++n) {
          const u32 i = n * kWarp + lane_id(), row = i / kUnits;
          const u8 *key = key_of(n), *value = value_of(n);
          if (kAll % kWarp != 0 && i >= kAll) continue;
          if (!all && place.first + row == without) continue;
          const bool valid = place.first + row < end;
          u8* at = to + row * Shape::kStride + i % kUnits * 16;
          copy_async_16(at, key, valid);
          copy_async_16(at + Shape::kTokens * Shape::kStride, value, valid);
        }
      };
      if ((place.first | kv.page_tokens) % Shape::kTokens == 0) {
        // The rows are neighbours in one page, as in all of the engine's caches. Constant distances
        // become part of the instruction.
        const u8* keys = kv.data + __shfl_sync(kAllLanes, own, 0) + lane_id() * 16;
        const u8* values = keys + kv.v_offset;
        copy_units([&](u32 n) { return keys + n * (kWarp * 16); },
                   [&](u32 n) { return values + n * (kWarp * 16); });
      } else {
        const auto key_of = [&](u32 n) {
          const u32 i = n * kWarp + lane_id();
          return kv.data + __shfl_sync(kAllLanes, own, i / kUnits % kWarp) + i % kUnits * 16;
        };
        copy_units(key_of, [&](u32 n) { return key_of(n) + kv.v_offset; });
      }
    }
    commit_copies();
  }
};

template <bool first, class A, class B>
struct Select {
  typedef A type;
};
template <class A, class B>
struct Select<false, A, B> {
  typedef B type;
};

// The scales of a slice on their way to shared memory: of a row of keys and of one of values per
// lane.
template <class T, int D>
struct SliceScales {
  typedef DecodeShape<T, D> Shape;
  // Scales of a row are read in pairs if their number is even.
  static constexpr bool in_pairs = Shape::kScales % 2 == 0;
  typedef typename Select<in_pairs, u32, u16>::type Word;
  static constexpr u32 kWords = in_pairs ? Shape::kScales / 2 : Shape::kScales;
  Word keys[kWords], values[kWords];

  // Sets the scales of a row of this lane.
  DEVICE_MEMBER void set(const u16 (&of_key)[Shape::kScales],
                         const u16 (&of_value)[Shape::kScales]) {
#pragma unroll
    for (u32 i = 0; i < kWords; ++i) {
      keys[i] = in_pairs ? Word(of_key[2 * i] | u32(of_key[2 * i + 1]) << 16) : Word(of_key[i]);
      values[i] =
          in_pairs ? Word(of_value[2 * i] | u32(of_value[2 * i + 1]) << 16) : Word(of_value[i]);
    }
  }
  DEVICE_MEMBER void load(const SliceReader<T, D>& from, RowPlace place) {
    const KvCache& kv = from.kv;
    const u8* head = kv.data + place.page * kv.page_bytes + from.head;
    const Word* k = reinterpret_cast<const Word*>(head + kv.k_scales) + place.slot * kWords;
    const Word* v = reinterpret_cast<const Word*>(head + kv.v_scales) + place.slot * kWords;
#pragma unroll
    for (u32 i = 0; i < kWords; ++i) {
      keys[i] = k[i];
      values[i] = v[i];
    }
  }
  DEVICE_MEMBER void store(u16* to) const {
    if (lane_id() >= Shape::kTokens) return;
    Word* rows = reinterpret_cast<Word*>(to);
#pragma unroll
    for (u32 i = 0; i < kWords; ++i) {
      rows[lane_id() * kWords + i] = keys[i];
      rows[(Shape::kTokens + lane_id()) * kWords + i] = values[i];
    }
  }
};

// Converts eight signed bytes to F16, times a scale in both halves of a word.
DEVICE uint4 scale_bytes(u32 first, u32 second, u32 scales) {
  const uint2 low = bytes_to_halves(first ^ 0x80808080u);
  const uint2 high = bytes_to_halves(second ^ 0x80808080u);
  return make_uint4(multiply_halves(low.x, scales), multiply_halves(low.y, scales),
                    multiply_halves(high.x, scales), multiply_halves(high.y, scales));
}

// Converts 16 bytes of a row of D numbers to F16, times a scale.
template <int D>
DEVICE void convert_unit(f16* row, u32 unit, uint4 bytes, u32 scales, q8) {
  uint4* halves = reinterpret_cast<uint4*>(row + unit * 16);
  halves[0] = scale_bytes(bytes.x, bytes.y, scales);
  halves[1] = scale_bytes(bytes.z, bytes.w, scales);
}
template <int D>
DEVICE void convert_unit(f16* row, u32 unit, uint4 words, u32 scales, q4) {
  uint4* halves = reinterpret_cast<uint4*>(row + unit * 32);
  halves[0] = scale_fours(words.x, scales);
  halves[1] = scale_fours(words.y, scales);
  if (unit * 32 + 16 >= D) return;
  halves[2] = scale_fours(words.z, scales);
  halves[3] = scale_fours(words.w, scales);
}

// Converts the rows of a slice's keys or values to F16. Rows from `count` on become zeros.
template <class T, int D>
DEVICE void convert_rows(f16* to, const u8* rows, const u16* scales, u32 count) {
  typedef DecodeShape<T, D> Shape;
  constexpr u32 kUnits = Shape::kRowBytes / 16, kAll = Shape::kTokens * kUnits;
  constexpr u32 kGroupUnits = KvBytes<T>::of(kScaleGroup) / 16;
#pragma unroll
  for (u32 n = 0; n < (kAll + kWarp - 1) / kWarp; ++n) {
    const u32 i = n * kWarp + lane_id(), row = i / kUnits, unit = i % kUnits;
    if (kAll % kWarp != 0 && i >= kAll) continue;
    const uint4 bytes = *reinterpret_cast<const uint4*>(rows + row * Shape::kStride + unit * 16);
    const u32 scale = row < count ? scales[row * Shape::kScales + unit / kGroupUnits] : 0;
    convert_unit<D>(to + row * kRowStride<D>, unit, bytes, scale | scale << 16, T{});
  }
}

// The sums of a block's warps, in shared memory.
template <int D, u32 warps>
struct BlockSums {
  float* outs;     // [warps][16][D]
  float* largest;  // [warps][16]
  float* totals;   // [warps][16]

  DEVICE_MEMBER BlockSums(float* shared)
      : outs(shared),
        largest(outs + warps * kQueryRows * D),
        totals(largest + warps * kQueryRows) {}

  DEVICE_MEMBER void store(const WarpState<D>& state) {
    const u32 lane = lane_id();
    for (u32 r = 0; r < 2; ++r) {
      const u32 row = warp_id() * kQueryRows + lane / 4 + 8 * r;
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
  }

  // Columns column .. column + 3 of a row.
  DEVICE_MEMBER RowSum sum(u32 row, u32 column) const {
    RowSum sum = {make_float4(0, 0, 0, 0), 0, -FORGE_INFINITY};
    for (u32 w = 0; w < warps; ++w) sum.largest = fmaxf(sum.largest, largest[w * kQueryRows + row]);
    const float base = sum.largest == -FORGE_INFINITY ? 0.0f : sum.largest;
    for (u32 w = 0; w < warps; ++w) {
      const u32 at = w * kQueryRows + row;
      const float factor = expf(largest[at] - base);
      sum.add(*reinterpret_cast<const float4*>(outs + at * D + column), factor);
      sum.total += totals[at] * factor;
    }
    return sum;
  }
};

// The position of a token whose key and value another warp appends.
constexpr u32 kNotAppended = 0xffffffffu;

// Prepares the queries of a token and, if this warp appends it at position `appended`, in a page,
// its key and value, whose slice is that of this warp. `first`: the warp's first slice.
template <class T, int D>
DEVICE void prepare_rows(typename ComputeType<T>::type* q_tile, u8* stages,
                         SliceScales<T, D>& scales, const SliceReader<T, D>& reader,
                         const NewRows& from, const QueryTile& tile, const HeadRows& rows,
                         u32 first, u32 appended, u32 page) {
  typedef DecodeShape<T, D> Shape;
  const KvCache& kv = reader.kv;
  // The last stage is still unused.
  float* values = reinterpret_cast<float*>(stages + (Shape::kStages - 1) * Shape::kStageBytes);
  const u32 q_cols = rows.n_heads * D, k_cols = kv.n_kv_heads * D;
  const float* row = from.qkv + u64(tile.first_row) * (q_cols + 2 * k_cols);
  const HeadAngles<D> angles(from.rope + u64(tile.first_row) * 2 * from.n_freqs, from.n_freqs);
  // Norms are requested together with the numbers.
  HeadNumbers<D> query, key, value, q_norm, k_norm;
  if (warp_id() < rows.count) query.load(row + rows.head(warp_id()) * D);
  if (from.q_norm) q_norm.load(from.q_norm);
  if (from.k_norm) k_norm.load(from.k_norm);
  if (appended != kNotAppended) {
    key.load(row + q_cols + rows.kv_head * D);
    value.load(row + q_cols + k_cols + rows.kv_head * D);
  }
  const auto prepare = [&](HeadNumbers<D>& head, bool has_norm, const HeadNumbers<D>& norm) {
    if (has_norm) head.normalise(norm, from.eps, from.offset);
    rotate_head<D>(values, head, angles, from.n_freqs, from.interleaved);
  };
  for (u32 i = warp_id(); i < kQueryRows; i += Shape::kWarps) {
    if (i < rows.count) {
      if (i != warp_id()) query.load(row + rows.head(i) * D);
      prepare(query, from.q_norm != nullptr, q_norm);
    }
    load_query<D>(q_tile + i * kRowStride<D>, values, i < rows.count);
  }
  if (appended == kNotAppended) return;
  prepare(key, from.k_norm != nullptr, k_norm);
  key.load(values);
  const u32 slot = appended - page_index(appended, kv.page_tokens) * kv.page_tokens;
  const u32 from_first = appended - first;
  const u32 stage = from_first / Shape::kStep, at = from_first % Shape::kStep;
  u8* copied = stage + 1 < Shape::kStages
                   ? stages + stage * Shape::kStageBytes + at * Shape::kStride
                   : nullptr;
  u8* copied_value = copied ? copied + Shape::kTokens * Shape::kStride : nullptr;
  u16 key_scales[Shape::kScales], value_scales[Shape::kScales];
  append_row<D>(keys_of<T>(kv, page, rows.kv_head), slot, copied, key, key_scales);
  append_row<D>(values_of<T>(kv, page, rows.kv_head), slot, copied_value, value, value_scales);
  if constexpr (Shape::is_scaled) {
    if (from_first == lane_id()) scales.set(key_scales, value_scales);
  }
}

// The rows of tokens are prepared: q has their queries, and pages have their keys and values.
struct PreparedRows {};

// Rows: NewRows if the kernel appends, else PreparedRows.
template <class T, int D, class Limits, bool appends, class Rows>
DEVICE void attend_entry(const AttentionOperands& a, const AttentionSplits& splits, u32* arrivals,
                         const Rows& new_rows) {
  wait_for_previous_kernel();
  const KvCache& kv = a.kv;
  const AttentionArgs& args = a.args;
  typedef DecodeShape<T, D> Shape;
  typedef typename Shape::C C;
  DYNAMIC_SHARED(u8, shared);
  C* q_tile = reinterpret_cast<C*>(shared);
  const u32 index = blockIdx.x, kv_head = blockIdx.y, first_row = blockIdx.z * kQueryRows;
  const AttentionWork entry = load_entry(splits.work + index);
  const QueryTile& tile = entry.tile;
  const u32 group = args.n_heads / kv.n_kv_heads;
  if (first_row >= tile.n_queries * group) return;
  const u32 n_rows = min(kQueryRows, tile.n_queries * group - first_row), last_row = n_rows - 1;
  const HeadRows rows = {first_row, n_rows, group, kv_head, args.n_heads};
  const u32 warp = warp_id(), lane = lane_id();

  const Visible first_query = visible_to(rows.query(0), tile, args);
  const Visible last_query = visible_to(rows.query(last_row), tile, args);
  const PositionRange split = range_of(entry, first_query.begin, args);
  const u32 begin = max(split.begin, first_query.begin / Shape::kTokens * Shape::kTokens);
  const u32 end = min(split.end, last_query.end);

  // The first slices are on their way while queries are loaded.
  u8* stages = shared + kQueryRows * kRowStride<D> * sizeof(C) + warp * Shape::kWarpBytes;
  u32 first = begin + warp * Shape::kTokens;
  const SliceReader<T, D> reader = {kv, a.page_tables + u64(tile.sequence) * a.page_stride,
                                    u64(kv_head) * kv.head_bytes, end};
  RowPlace places[Shape::kStages] = {};  // of the next slices
  SliceScales<T, D> scales = {};
  u32 appended = kNotAppended, page_of_appended = 0;
  if constexpr (appends) {
    const u32 position = tile.first_position;
    const bool is_own = position >= begin && position < end &&
                        (position - begin) / Shape::kTokens % Shape::kWarps == warp;
    if (is_own) {
      appended = position;
      page_of_appended = u32(reader.table[page_index(position, kv.page_tokens)]);
    }
  }
  if (begin < end) {
#pragma unroll
    for (u32 i = 0; i < Shape::kStages; ++i) places[i] = reader.seek(first + i * Shape::kStep);
    if constexpr (Shape::is_scaled) {
      // The scales of the token's position, which rows past the end take, are being stored.
      if (!appends || places[0].first + lane % Shape::kTokens < tile.first_position) {
        scales.load(reader, places[0]);
      }
    }
#pragma unroll
    for (u32 i = 0; i + 1 < Shape::kStages; ++i) {
      reader.template copy<!appends>(stages + i * Shape::kStageBytes, places[i], appended);
    }
  }

  if constexpr (appends) {
    prepare_rows<T, D>(q_tile, stages, scales, reader, new_rows, tile, rows, first, appended,
                       page_of_appended);
  } else {
    for (u32 i = warp; i < kQueryRows; i += Shape::kWarps) {
      const u32 row = i < n_rows ? i : 0;
      const u64 token = tile.first_row + rows.query(row);
      const float* from = a.q + (token * args.n_heads + rows.head(row)) * D;
      load_query<D>(q_tile + i * kRowStride<D>, from, i < n_rows);
    }
  }
  const auto limits = [&](u32 r) {
    const u32 row = min(lane / 4 + 8 * r, last_row), query = rows.query(row);
    return Limits(visible_to(query, tile, args), args, tile.first_row + query, rows.head(row));
  };
  const Limits visible[2] = {limits(0), limits(1)};
  __syncthreads();

  WarpState<D> state;
  state.clear();
  for (u32 stage = 0; first < end; first += Shape::kStep, stage = (stage + 1) % Shape::kStages) {
    const u8* keys = stages + stage * Shape::kStageBytes;
    const u8* values = keys + Shape::kTokens * Shape::kStride;
#pragma unroll
    for (u32 i = 0; i + 1 < Shape::kStages; ++i) places[i] = places[i + 1];
    constexpr u32 kNext = Shape::kStages - 1;
    reader.copy(stages + (stage + kNext) % Shape::kStages * Shape::kStageBytes, places[kNext - 1]);
    places[kNext] = reader.seek(first + Shape::kStages * Shape::kStep);
    if constexpr (Shape::is_scaled) {
      float scores[Shape::kTokens / 8][4];
      f16* tile_of_rows = reinterpret_cast<f16*>(stages + Shape::kStages * Shape::kStageBytes);
      u16* slice_scales = reinterpret_cast<u16*>(tile_of_rows) + Shape::kTileBytes / 2;
      scales.store(slice_scales);
      scales.load(reader, places[0]);
      wait_copies<kNext>();
      __syncwarp();
      const u32 count = end - first;
      convert_rows<T, D>(tile_of_rows, keys, slice_scales, count);
      __syncwarp();
      multiply_keys<D, Shape::kTokens>(scores, q_tile, tile_of_rows);
      weigh_scores<D, Shape::kTokens>(state, scores, first, visible, args, n_rows > 8);
      __syncwarp();
      convert_rows<T, D>(tile_of_rows, values, slice_scales + Shape::kTokens * Shape::kScales,
                         count);
      __syncwarp();
      add_values<D, Shape::kTokens>(state, scores, tile_of_rows);
    } else {
      wait_copies<kNext>();
      __syncwarp();
      attend<D, Shape::kTokens>(state, q_tile, reinterpret_cast<const C*>(keys),
                                reinterpret_cast<const C*>(values), first, visible, args,
                               n_rows > 8);
    }
    __syncwarp();
  }
  wait_copies<0>();

  __syncthreads();
  BlockSums<D, Shape::kWarps> sums(reinterpret_cast<float*>(shared));
  sums.store(state);
  __syncthreads();
  const u64 entry_rows = u64(args.max_queries) * args.n_heads;
#pragma unroll 1
  for (u32 i = threadIdx.x; i < n_rows * (D / 4); i += blockDim.x) {
    const u32 row = i / (D / 4), column = i % (D / 4) * 4;
    const RowSum sum = sums.sum(row, column);
    const u32 head = rows.head(row);
    if (entry.n_splits == 1) {
      float* to = a.out + ((tile.first_row + rows.query(row)) * u64(args.n_heads) + head) * D;
      *reinterpret_cast<float4*>(to + column) =
          sum.result(args.sinks ? args.sinks + head : nullptr);
      continue;
    }
    const u64 at = index * entry_rows + u64(rows.query(row)) * args.n_heads + head;
    *reinterpret_cast<float4*>(splits.out + at * D + column) = sum.out;
    if (column == 0) {
      *reinterpret_cast<float2*>(splits.ml + at * 2) = make_float2(sum.largest, sum.total);
    }
  }
  if (entry.n_splits == 1) return;

  const u32 first_entry = index - entry.split;
  u32* counter =
      arrivals + (u64(first_entry) * gridDim.z + blockIdx.z) * gridDim.y + blockIdx.y;
  if (!is_last_arrival(counter, entry.n_splits)) return;
#pragma unroll 1
  for (u32 row = warp; row < n_rows; row += Shape::kWarps) {
    const u32 head = rows.head(row);
    const u64 at = first_entry * entry_rows + u64(rows.query(row)) * args.n_heads + head;
    float* to = a.out + ((tile.first_row + rows.query(row)) * u64(args.n_heads) + head) * D;
#pragma unroll 1
    for (u32 column = 0; column < D; column += 4 * kWarp) {
      const RowSum sum = merge_parts(splits.out + at * D, splits.ml + at * 2, entry_rows,
                                     entry.n_splits, column, D);
      if (column + 4 * lane < D) {
        *reinterpret_cast<float4*>(to + column + 4 * lane) =
            sum.result(args.sinks ? args.sinks + head : nullptr);
      }
    }
  }
}

template <class T, int D, class Limits = Unmasked>
__global__ void __launch_bounds__(DecodeShape<T, D>::kWarps * 32, 3)
    batched_decode_attention(ARGUMENT(AttentionOperands) a, ARGUMENT(AttentionSplits) splits,
                             u32* arrivals) {
  attend_entry<T, D, Limits, false>(a, splits, arrivals, PreparedRows());
}

// q of the operands is unused. At most 16 query heads per KV head.
template <class T, int D>
__global__ void __launch_bounds__(DecodeShape<T, D>::kWarps * 32, 3)
    rope_decode_attention(ARGUMENT(AttentionOperands) a, ARGUMENT(AttentionSplits) splits,
                          u32* arrivals, ARGUMENT(NewRows) rows) {
  attend_entry<T, D, Unmasked, true>(a, splits, arrivals, rows);
}

// out[token, head] = sum of all splits of the tile / their total, sinks included; zeros where a
// mask hides every position. For latent_attention, whose values are too wide for one block.
//   grid: (maximum number of entries, n_heads * max_queries); block 128
KERNEL merge_attention_splits(AttentionOperands a, AttentionSplits splits) {
  wait_for_previous_kernel();
  const AttentionArgs& args = a.args;
  const u32 dim = a.kv.v_dim;
  const AttentionWork entry = splits.work[blockIdx.x];
  const u32 head = blockIdx.y % args.n_heads, query = blockIdx.y / args.n_heads;
  if (entry.split != 0 || query >= entry.tile.n_queries) return;
  const u64 entry_rows = u64(args.max_queries) * args.n_heads;
  const u64 at = blockIdx.x * entry_rows + u64(query) * args.n_heads + head;
  float* to = a.out + (u64(entry.tile.first_row + query) * args.n_heads + head) * dim;
  for (u32 column = warp_id() * 4 * kWarp; column < dim; column += 4 * blockDim.x) {
    const RowSum sum = merge_parts(splits.out + at * dim, splits.ml + at * 2, entry_rows,
                                   entry.n_splits, column, dim);
    if (column + 4 * lane_id() < dim) {
      *reinterpret_cast<float4*>(to + column + 4 * lane_id()) =
          sum.result(args.sinks ? args.sinks + head : nullptr);
    }
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
INSTANCE(batched_decode_attention<q4, 16>)
INSTANCE(batched_decode_attention<q4, 32>)
INSTANCE(batched_decode_attention<q4, 64>)
INSTANCE(batched_decode_attention<q4, 80>)
INSTANCE(batched_decode_attention<q4, 96>)
INSTANCE(batched_decode_attention<q4, 128>)
INSTANCE(batched_decode_attention<q4, 256>)
INSTANCE(batched_decode_attention<f16, 64, Masked>)
INSTANCE(batched_decode_attention<f16, 128, Masked>)
INSTANCE(batched_decode_attention<f16, 256, Masked>)
INSTANCE(batched_decode_attention<bf16, 64, Masked>)
INSTANCE(batched_decode_attention<bf16, 128, Masked>)
INSTANCE(batched_decode_attention<bf16, 256, Masked>)
INSTANCE(batched_decode_attention<q8, 64, Masked>)
INSTANCE(batched_decode_attention<q8, 128, Masked>)
INSTANCE(batched_decode_attention<q8, 256, Masked>)
INSTANCE(batched_decode_attention<q4, 64, Masked>)
INSTANCE(batched_decode_attention<q4, 128, Masked>)
INSTANCE(batched_decode_attention<q4, 256, Masked>)
INSTANCE(rope_decode_attention<f16, 32>)
INSTANCE(rope_decode_attention<f16, 64>)
INSTANCE(rope_decode_attention<f16, 128>)
INSTANCE(rope_decode_attention<f16, 256>)
INSTANCE(rope_decode_attention<bf16, 32>)
INSTANCE(rope_decode_attention<bf16, 64>)
INSTANCE(rope_decode_attention<bf16, 128>)
INSTANCE(rope_decode_attention<bf16, 256>)
INSTANCE(rope_decode_attention<q8, 32>)
INSTANCE(rope_decode_attention<q8, 64>)
INSTANCE(rope_decode_attention<q8, 128>)
INSTANCE(rope_decode_attention<q8, 256>)

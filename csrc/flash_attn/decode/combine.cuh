// Combines the partial results that blocks of the decode kernel wrote to the workspace. A block
// combines columns of one row. A lane has four columns of one or two runs of four parts, whose
// log-sum-exps it loads at once. With up to 32 parts, four lanes share a warp's columns:
//
//   columns    0-3       4-7      ...    28-31
//              lane 0    lane 1          lane 7     parts  0-3, 16-19
//              lane 8    lane 9          lane 15    parts  4-7, 20-23
//              lane 16   lane 17         lane 23    parts  8-11, 24-27
//              lane 24   lane 25         lane 31    parts 12-15, 28-31
//
// With up to 64 or 128 parts it is 8 or 16 lanes, so that a lane never has more than eight parts.
// The lanes of a column add up by shuffles. The kernel is launched while the decode kernel runs:
// everything that does not depend on the parts, addresses included, is done before the wait for
// them. All loads after it are in flight at once.
#pragma once

#include "decode/parts.cuh"

namespace flash_attn {

// The instance for up to kMostParts parts.
template <int kMostParts>
struct CombineShape {
  // Lanes that share columns, and columns of a warp.
  static constexpr int kLanes = kMostParts <= 32 ? 4 : kMostParts / 8;
  static constexpr int kColumns = 32 / kLanes * 4;
  static constexpr int kRuns = kMostParts / (4 * kLanes);
  // Blocks of a row, of head_dim threads each.
  static constexpr int kBlocks = kPartColumns / kColumns;
};

// The sum or the greatest of the numbers of the kLanes lanes that share columns.
template <int kLanes>
FA_DEVICE float sum_of_parts(float value) {
#pragma unroll
  for (int lanes = 32 / kLanes; lanes < 32; lanes *= 2) value += shuffle_xor(value, lanes);
  return value;
}
template <int kLanes>
FA_DEVICE float top_of_parts(float value) {
#pragma unroll
  for (int lanes = 32 / kLanes; lanes < 32; lanes *= 2) {
    value = fmaxf(value, shuffle_xor(value, lanes));
  }
  return value;
}

// Adds up the columns of the lanes that share them. The upper half of the warp keeps the last two
// of a lane's four columns, and of each half the upper one keeps the second of two.
template <int kLanes>
FA_DEVICE float sum_of_columns(const Floats4 &own, bool upper, bool second) {
  float half[2];
#pragma unroll
  for (int i = 0; i < 2; i++) {
    half[i] = (upper ? own[i + 2] : own[i]) + shuffle_xor(upper ? own[i] : own[i + 2], 16);
  }
  float sum = (second ? half[1] : half[0]) + shuffle_xor(second ? half[0] : half[1], 8);
#pragma unroll
  for (int lanes = 32 / kLanes; lanes < 8; lanes *= 2) sum += shuffle_xor(sum, lanes);
  return sum;
}

// block_x is the row (query * n_heads + head), block_y the sequence, block_z the columns.
template <class T, int kMostParts>
FA_KERNEL FA_LAUNCH_BOUNDS(256, 1) combine_sm80(FA_GRID_CONSTANT DecodeArgs args) {
  using Shape = CombineShape<kMostParts>;
  constexpr int kLanes = Shape::kLanes, kRuns = Shape::kRuns, kColumnLanes = 32 / kLanes;
  const int query = divide(block_x(), args.n_heads);
  const int head = block_x() - query * args.n_heads.value;
  const Sequence sequence(args.query, args.kv, block_y());
  const KeyParts parts(args, sequence);
  // With a single part, the decode kernel wrote the output itself.
  if (query >= sequence.n_queries || parts.count == 1) {
    // The next kernel counts on this one to end after the previous kernel.
    wait_for_previous_kernel();
    return;
  }
  const int64_t row = partial_row(args, sequence, query, head);
  const int lane = thread_index() % 32, own_parts = lane / kColumnLanes * 4;
  const int warp = block_z() * (args.head_dim / 32) + thread_index() / 32;
  const int own_columns = warp * Shape::kColumns + lane % kColumnLanes * 4;
  // A part that does not exist has no weight, and the numbers of the last part.
  const float *lse_from[kRuns], *from[kRuns][4];
  float most[kRuns][4];
  uintptr_t addresses = 0;
#pragma unroll
  for (int run = 0; run < kRuns; run++) {
    const int first = run * 4 * kLanes + own_parts;
    lse_from[run] = partial_lse(args, row) + (first < parts.count ? first : 0);
    addresses |= reinterpret_cast<uintptr_t>(lse_from[run]);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const bool exists = first + i < parts.count;
      from[run][i] = partial_out(args, row, exists ? first + i : parts.count - 1, own_columns);
      addresses |= reinterpret_cast<uintptr_t>(from[run][i]);
      most[run][i] = exists ? -kMinusInfinity : kMinusInfinity;
    }
  }
  const bool upper = lane >= 16, second = lane % 16 >= 8;
  const QueryArgs &q = args.query;
  T *const to = static_cast<T *>(q.out) +
                row_offset(q.out_stride, q.cu_seqlens != nullptr, sequence, query, head) +
                own_columns + (upper ? 2 : 0) + (second ? 1 : 0);
  const bool writes = lane % 8 < kColumnLanes;
  const bool writes_lse = q.lse != nullptr && thread_index() == 0 && block_z() == 0;
  float *const lse_to = lse_at(q, sequence, query, head);
  const float sink = sink_log2(args, head);
  const float least = fmaxf(sink, kLowest);
  compute_here(addresses | reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(lse_to));
  wait_for_previous_kernel();
  allow_next_kernel();

  Floats4 lse[kRuns], values[kRuns][4];
#pragma unroll
  for (int run = 0; run < kRuns; run++) load_floats(lse[run], lse_from[run]);
#pragma unroll
  for (int run = 0; run < kRuns; run++) {
#pragma unroll
    for (int i = 0; i < 4; i++) load_floats(values[run][i], from[run][i]);
  }
  // The base is finite, so that no difference from it is undefined.
  float base = least;
#pragma unroll
  for (int run = 0; run < kRuns; run++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      lse[run][i] = fminf(lse[run][i], most[run][i]);
      base = fmaxf(base, lse[run][i]);
    }
  }
  base = top_of_parts<kLanes>(base);
  float total = 0;
  Floats4 sum = {};
#pragma unroll
  for (int run = 0; run < kRuns; run++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float weight = exp2_fast(lse[run][i] - base);
      total += weight;
      add_weighted(sum, weight, values[run][i]);
    }
  }
  total = sum_of_parts<kLanes>(total) + exp2_fast(sink - base);
  // Without a visible key or a sink, all sums are 0, also this one.
  const float factor = reciprocal_fast(fmaxf(total, kSmallest));
  const float result = sum_of_columns<kLanes>(sum, upper, second) * factor;
  if (writes) to->bits = static_cast<uint16_t>(pack<T>(result, 0));
  if (writes_lse) *lse_to = (base + log2_fast(total)) * kLn2;
}

}  // namespace flash_attn

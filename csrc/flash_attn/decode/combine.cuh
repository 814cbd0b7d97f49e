// Combines the partial results that blocks of the decode kernel wrote to the workspace. A block
// combines one row. Its threads are groups that each own a share of the parts, and each thread of a
// group owns four columns:
//
//   head_dim 128, 7 parts      columns 0-3   columns 4-7   ...
//   group 0: parts 0 and 4     thread 0      thread 1
//   group 1: parts 1 and 5     thread 32     thread 33
//   ...
//
// Everything that does not depend on the partial results is done before the wait for them: the
// kernel is launched while the decode kernel runs.
#pragma once

#include "decode/parts.cuh"

namespace flash_attn {

inline constexpr int kCombineThreads = 128;
// Parts that a group loads at once.
inline constexpr int kCombineParts = 8;

// Bytes of shared memory: the parts' weights, and the sums of all groups.
inline constexpr int kCombineSharedBytes = (kMaxSplits + 4 * kCombineThreads) * 4;

// The weights of a row's parts, relative to their sum; returns the row's log-sum-exp in base 2.
// For one warp, each lane of which has four parts.
FA_DEVICE float part_weights(float *weights, const float *lse, int count) {
  const int first = 4 * (thread_index() % 32);
  Floats4 own = {};
  if (first < count) load_floats(own, lse + first);
  float top = kMinusInfinity;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    if (first + i >= count) own[i] = kMinusInfinity;
    top = fmaxf(top, own[i]);
  }
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) top = fmaxf(top, shuffle_xor(top, lanes));
  const float base = top == kMinusInfinity ? 0.0f : top;
  float total = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    own[i] = exp2_fast(own[i] - base);
    total += own[i];
  }
#pragma unroll
  for (int lanes = 1; lanes < 32; lanes *= 2) total += shuffle_xor(total, lanes);
  // Without a visible key all weights are 0.
  const float factor = top == kMinusInfinity ? 0.0f : reciprocal_fast(total);
#pragma unroll
  for (int i = 0; i < 4; i++) own[i] *= factor;
  if (first < count) store_floats(weights + first, own);
  return top == kMinusInfinity ? top : top + log2_fast(total);
}

// block_x is the row (query * n_heads + head), block_y the sequence.
template <class T>
FA_KERNEL FA_LAUNCH_BOUNDS(kCombineThreads, 1) combine_sm80(FA_GRID_CONSTANT DecodeArgs args) {
  const int query = divide(block_x(), args.n_heads);
  const int head = block_x() - query * args.n_heads.value;
  const Sequence sequence(args.query, args.kv, block_y());
  const KeyParts parts(args, sequence);
  const float sink = sink_log2(args, head);
  const int64_t row = partial_row(args, sequence, query, head);
  const int columns = args.head_dim / 4, groups = kCombineThreads / columns;
  const int group = thread_index() / columns, column = thread_index() - group * columns;
  wait_for_previous_kernel();
  allow_next_kernel();
  // With a single part, the decode kernel wrote the output itself.
  if (query >= sequence.n_queries || parts.count == 1) return;

  float *const weights = reinterpret_cast<float *>(dynamic_shared());
  float *const sums = weights + kMaxSplits;
  Floats4 sum = {};
  float lse_log2 = 0;
  for (int first = 0; first < parts.count; first += groups * kCombineParts) {
    Floats4 values[kCombineParts];
    const auto part = [&](int i) { return first + i * groups + group; };
#pragma unroll
    for (int i = 0; i < kCombineParts; i++) {
      if (group < groups && part(i) < parts.count) {
        load_floats(values[i], partial_out(args, row, part(i)) + 4 * column);
      }
    }
    if (first == 0) {
      if (thread_index() < 32) {
        lse_log2 =
            part_weights(weights, args.partial_lse + row * partial_stride(args), parts.count);
      }
      block_barrier();
    }
#pragma unroll
    for (int i = 0; i < kCombineParts; i++) {
      if (group < groups && part(i) < parts.count) add_weighted(sum, weights[part(i)], values[i]);
    }
  }
  if (group < groups) store_floats(sums + 4 * thread_index(), sum);
  block_barrier();

  const int chunk = thread_index();
  if (chunk >= args.head_dim / 8) return;
  Combined result = {};
  result.lse_log2 = lse_log2;
  for (int i = 0; i < groups; i++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      Floats4 value;
      load_floats(value, sums + i * args.head_dim + 8 * chunk + 4 * half);
      add_weighted(result.value[half], 1, value);
    }
  }
  write_combined<T>(args, sequence, query, head, chunk, sink, result);
}

}  // namespace flash_attn

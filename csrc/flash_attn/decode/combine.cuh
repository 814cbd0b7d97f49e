// Combines the partial results that blocks of the decode kernel wrote to the workspace.
#pragma once

#include "decode/parts.cuh"

namespace flash_attn {

inline constexpr int kCombineThreads = 128;

/// Each thread owns eight columns of one row; block_y is the sequence.
template <class T>
FA_KERNEL FA_LAUNCH_BOUNDS(kCombineThreads, 1) combine_sm80(FA_GRID_CONSTANT DecodeArgs args) {
  const int chunks = args.head_dim / 8;
  const int i = block_x() * kCombineThreads + thread_index();
  const int row = i / chunks, chunk = i % chunks;
  const int query = row / args.n_heads, head = row % args.n_heads;
  const Sequence sequence(args.query, args.kv, block_y());
  if (query >= sequence.n_queries) return;
  const KeyParts parts(args, sequence);
  // With a single part, the decode kernel wrote the output itself.
  if (parts.count == 1) return;
  const auto row_of = [&](int part) { return partial_row(args, part, sequence, query, head); };
  const Combined combined = combine_parts(
      parts.count, [&](int part) { return args.partial_lse[row_of(part)]; },
      [&](int part) { return args.partial_out + row_of(part) * args.head_dim + 8 * chunk; });
  write_combined<T>(args, sequence, query, head, chunk, combined);
}

}  // namespace flash_attn

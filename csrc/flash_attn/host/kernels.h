// The kernels, instantiated for every type and head_dim in separate files.
#pragma once

#include "args.h"
#include "device/types.h"
#include "host/runtime.h"

namespace flash_attn {

/// Query rows that a block of the forward kernel computes.
template <int kHeadDim>
int32_t forward_rows_sm80();
template <int kHeadDim>
int32_t forward_rows_sm90();

/// A launch of the forward kernel. SM80 ignores all but the arguments and the stream.
struct ForwardLaunch {
  ForwardArgs args;
  int32_t batch;
  int64_t q_rows;           // of all packed sequences, or per sequence
  int64_t k_rows;           // of all packed sequences, per sequence, or per page
  int32_t multiprocessors;
  int32_t *counter;         // in the workspace
  void *stream;
};

template <class T, int kHeadDim>
flash_attn_status launch_forward_sm80(const ForwardLaunch &forward);
template <class T, int kHeadDim>
flash_attn_status launch_forward_sm90(const ForwardLaunch &forward);

/// `row_tiles` tiles of 16 rows, or 64 if `wide`.
template <class T, int kHeadDim>
flash_attn_status launch_decode(const DecodeArgs &args, bool wide, int32_t row_tiles, void *stream);

/// F16 queries, and keys and values of Q8_0, in tiles of 16 rows.
template <int kHeadDim>
flash_attn_status launch_decode_q8(const DecodeArgs &args, int32_t row_tiles, void *stream);

/// Combines the results of the decode launch before it; see LaunchShape::dependent.
template <class T>
flash_attn_status launch_combine(const DecodeArgs &args, bool dependent, void *stream);

/// Calls `function.template operator()<kHeadDim>()` for a run-time head_dim.
template <class Function>
auto with_head_dim(int32_t head_dim, const Function &function) {
  switch (head_dim) {
    case 64:
      return function.template operator()<64>();
    case 96:
      return function.template operator()<96>();
    case 128:
      return function.template operator()<128>();
    case 192:
      return function.template operator()<192>();
    default:
      return function.template operator()<256>();
  }
}

}  // namespace flash_attn

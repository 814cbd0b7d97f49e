// The kernels, instantiated for every type and head_dim in separate files.
#pragma once

#include "args.h"
#include "device/types.h"
#include "host/runtime.h"

namespace flash_attn {

// Query rows that a block of the forward kernel computes.
template <int kHeadDim>
int32_t forward_rows_sm80();
template <int kHeadDim>
int32_t forward_rows_sm90();

// A launch of the forward kernel. SM80 ignores all but the arguments and the stream.
struct ForwardLaunch {
  ForwardArgs args;
  int32_t batch;
  int64_t q_rows;           // of all packed sequences, or per sequence
  int64_t k_rows;           // of all packed sequences, per sequence, or per page
  int32_t multiprocessors;
  int32_t *counter;         // in the workspace
  E4m3Args e4m3;
  MaskArgs mask;
  void *stream;
};

template <class T, int kHeadDim>
flash_attn_status launch_forward_sm80(const ForwardLaunch &forward);
template <class T, int kHeadDim>
flash_attn_status launch_forward_sm90(const ForwardLaunch &forward);
// The kernel of SM80 with the launch's mask.
template <class T, int kHeadDim>
flash_attn_status launch_masked_sm80(const ForwardLaunch &forward);

// A launch of the decode kernel, or of the combine kernel after it.
struct DecodeLaunch {
  DecodeArgs args;
  bool wide;          // tiles of 64 rows instead of 16
  int32_t row_tiles;
  bool dependent;     // see LaunchShape
  void *stream;
  MaskArgs mask;
};

template <class T, int kHeadDim>
flash_attn_status launch_decode(const DecodeLaunch &decode);

// F16 queries, and keys and values of Q8_0, in tiles of 16 rows.
template <int kHeadDim>
flash_attn_status launch_decode_q8(const DecodeLaunch &decode);

// The launch's mask, in tiles of 16 rows.
template <class T, int kHeadDim, bool kIsQ8>
flash_attn_status launch_masked_decode(const DecodeLaunch &decode);

template <class T>
flash_attn_status launch_combine(const DecodeLaunch &decode);

// Calls `function.template operator()<kHeadDim>()` for a run-time head_dim.
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

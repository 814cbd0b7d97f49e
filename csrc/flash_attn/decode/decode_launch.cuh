// Instantiates the decode kernel for one head_dim.
#pragma once

#include "decode/decode.cuh"
#include "host/kernels.h"

namespace flash_attn {

template <class Tile>
LaunchShape decode_shape(const DecodeLaunch &decode) {
  const DecodeArgs &args = decode.args;
  return {static_cast<uint32_t>(args.n_splits),
          static_cast<uint32_t>(args.n_kv_heads.value * decode.row_tiles),
          static_cast<uint32_t>(args.batch), Tile::kThreads, Tile::kSharedBytes, decode.dependent};
}

template <class T, int kHeadDim, int kRowWarps, bool kIsQ8 = false>
flash_attn_status launch_decode_shape(const DecodeLaunch &decode) {
  return launch(decode_sm80<T, kHeadDim, kRowWarps, kIsQ8, false>,
                decode_shape<DecodeTile<kHeadDim, kRowWarps, kIsQ8>>(decode), decode.stream,
                decode.args);
}

template <class T, int kHeadDim>
flash_attn_status launch_decode(const DecodeLaunch &decode) {
  return decode.wide ? launch_decode_shape<T, kHeadDim, 4>(decode)
                     : launch_decode_shape<T, kHeadDim, 1>(decode);
}

template <int kHeadDim>
flash_attn_status launch_decode_q8(const DecodeLaunch &decode) {
  return launch_decode_shape<f16, kHeadDim, 1, true>(decode);
}

template <class T, int kHeadDim, bool kIsQ8>
flash_attn_status launch_masked_decode(const DecodeLaunch &decode) {
  const Masked<DecodeArgs> args = {decode.args, decode.mask};
  return launch(decode_sm80<T, kHeadDim, 1, kIsQ8, true>,
                decode_shape<DecodeTile<kHeadDim, 1, kIsQ8>>(decode), decode.stream, args);
}

}  // namespace flash_attn

#define FLASH_ATTN_DECODE_SM80(head_dim)                                             \
  namespace flash_attn {                                                             \
  template flash_attn_status launch_decode<f16, head_dim>(const DecodeLaunch &);     \
  template flash_attn_status launch_decode<bf16, head_dim>(const DecodeLaunch &);    \
  template flash_attn_status launch_decode_q8<head_dim>(const DecodeLaunch &);       \
  }

#define FLASH_ATTN_DECODE_MASKED(head_dim)                                                      \
  namespace flash_attn {                                                                        \
  template flash_attn_status launch_masked_decode<f16, head_dim, false>(const DecodeLaunch &);  \
  template flash_attn_status launch_masked_decode<bf16, head_dim, false>(const DecodeLaunch &); \
  template flash_attn_status launch_masked_decode<f16, head_dim, true>(const DecodeLaunch &);   \
  }

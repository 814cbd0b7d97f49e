// Instantiates the decode kernel for one head_dim.
#pragma once

#include "decode/decode.cuh"
#include "host/kernels.h"

namespace flash_attn {

template <class T, int kHeadDim, int kRowWarps, bool kIsQ8 = false>
flash_attn_status launch_decode_shape(const DecodeArgs &args, int32_t row_tiles, void *stream) {
  using Tile = DecodeTile<kHeadDim, kRowWarps, kIsQ8>;
  const LaunchShape shape = {
      static_cast<uint32_t>(args.n_splits),
      static_cast<uint32_t>(args.n_kv_heads.value * row_tiles),
      static_cast<uint32_t>(args.batch), Tile::kThreads, Tile::kSharedBytes};
  return launch(decode_sm80<T, kHeadDim, kRowWarps, kIsQ8>, shape, stream, args);
}

template <class T, int kHeadDim>
flash_attn_status launch_decode(const DecodeArgs &args, bool wide, int32_t row_tiles,
                                void *stream) {
  return wide ? launch_decode_shape<T, kHeadDim, 4>(args, row_tiles, stream)
              : launch_decode_shape<T, kHeadDim, 1>(args, row_tiles, stream);
}

template <int kHeadDim>
flash_attn_status launch_decode_q8(const DecodeArgs &args, int32_t row_tiles, void *stream) {
  return launch_decode_shape<f16, kHeadDim, 1, true>(args, row_tiles, stream);
}

}  // namespace flash_attn

#define FLASH_ATTN_DECODE_SM80(head_dim)                                                         \
  namespace flash_attn {                                                                         \
  template flash_attn_status launch_decode<f16, head_dim>(const DecodeArgs &, bool, int32_t,     \
                                                          void *);                               \
  template flash_attn_status launch_decode<bf16, head_dim>(const DecodeArgs &, bool, int32_t,    \
                                                           void *);                              \
  template flash_attn_status launch_decode_q8<head_dim>(const DecodeArgs &, int32_t, void *);    \
  }

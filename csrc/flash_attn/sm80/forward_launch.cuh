// Instantiates the forward kernel of SM80 for one head_dim.
#pragma once

#include "host/kernels.h"
#include "sm80/forward.cuh"

namespace flash_attn {

template <int kHeadDim>
int32_t forward_rows_sm80() {
  return ForwardTile<kHeadDim>::kRows;
}

template <int kHeadDim, bool kMasked>
LaunchShape launch_shape_sm80(const ForwardLaunch &forward) {
  return {static_cast<uint32_t>(forward.args.schedule.tiles), 1, 1,
          ForwardTile<kHeadDim, kMasked>::kThreads, forward_shared_bytes<kHeadDim, kMasked>()};
}

template <class T, int kHeadDim>
flash_attn_status launch_forward_sm80(const ForwardLaunch &forward) {
  return launch(forward_sm80<T, kHeadDim, false>, launch_shape_sm80<kHeadDim, false>(forward),
                forward.stream, forward.args);
}

template <class T, int kHeadDim>
flash_attn_status launch_masked_sm80(const ForwardLaunch &forward) {
  const Masked<ForwardArgs> args = {forward.args, forward.mask};
  return launch(forward_sm80<T, kHeadDim, true>, launch_shape_sm80<kHeadDim, true>(forward),
                forward.stream, args);
}

}  // namespace flash_attn

#define FLASH_ATTN_FORWARD_SM80(head_dim)                                                        \
  namespace flash_attn {                                                                         \
  template int32_t forward_rows_sm80<head_dim>();                                                \
  template flash_attn_status launch_forward_sm80<f16, head_dim>(const ForwardLaunch &);          \
  template flash_attn_status launch_forward_sm80<bf16, head_dim>(const ForwardLaunch &);         \
  }

#define FLASH_ATTN_MASKED_SM80(head_dim)                                                         \
  namespace flash_attn {                                                                         \
  template flash_attn_status launch_masked_sm80<f16, head_dim>(const ForwardLaunch &);           \
  template flash_attn_status launch_masked_sm80<bf16, head_dim>(const ForwardLaunch &);          \
  }

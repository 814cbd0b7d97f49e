// Instantiates the forward kernel of SM80 for one head_dim.
#pragma once

#include "host/kernels.h"
#include "sm80/forward.cuh"

namespace flash_attn {

template <int kHeadDim>
int32_t forward_rows_sm80() {
  return ForwardTile<kHeadDim>::kRows;
}

template <class T, int kHeadDim>
flash_attn_status launch_forward_sm80(const ForwardLaunch &forward) {
  const LaunchShape shape = {static_cast<uint32_t>(forward.args.schedule.tiles), 1, 1,
                             ForwardTile<kHeadDim>::kThreads, forward_shared_bytes<kHeadDim>()};
  return launch(forward_sm80<T, kHeadDim>, shape, forward.stream, forward.args);
}

}  // namespace flash_attn

#define FLASH_ATTN_FORWARD_SM80(head_dim)                                                        \
  namespace flash_attn {                                                                         \
  template int32_t forward_rows_sm80<head_dim>();                                                \
  template flash_attn_status launch_forward_sm80<f16, head_dim>(const ForwardLaunch &);          \
  template flash_attn_status launch_forward_sm80<bf16, head_dim>(const ForwardLaunch &);         \
  }

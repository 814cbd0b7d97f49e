// Instantiates the forward kernel of SM90 for one head_dim, and describes its tensors.
#pragma once

#include <algorithm>

#include "host/kernels.h"
#include "host/tensor_strides.h"
#include "sm90/forward.cuh"

namespace flash_attn {

template <int kHeadDim>
int32_t forward_rows_sm90() {
  return Sm90Tile<kHeadDim, false>::kRows;
}

// K or V of a launch, as boxes of `box_rows` keys.
template <class Tile>
TensorShape key_tensor(const ForwardLaunch &launch, const void *data, const Strides &stride,
                       int32_t box_rows) {
  const ForwardArgs &args = launch.args;
  TensorShape shape = {};
  shape.data = data;
  shape.columns = Tile::kColumns;
  shape.rows = launch.k_rows;
  shape.heads = args.schedule.n_heads.value / args.schedule.group.value;
  // The host does not know the number of pages; it depends on the block table.
  shape.batches = args.kv.block_table != nullptr  ? int64_t{1} << 31
                  : args.kv.cu_seqlens != nullptr ? 1
                                                  : launch.batch;
  shape.row_stride = 2 * stride.row;
  shape.head_stride = 2 * stride.head;
  shape.batch_stride = 2 * stride.batch;
  shape.box_columns = Tile::kPanel;
  shape.box_rows = box_rows;
  return shape;
}

template <class T, int kHeadDim, bool kCapped>
flash_attn_status launch_tile_sm90(const ForwardLaunch &forward) {
  using Tile = TileOf<T, kHeadDim, kCapped>;
  static_assert(Tile::kRows == Sm90Tile<kHeadDim, false>::kRows);
  const ForwardArgs &args = forward.args;
  Sm90ForwardArgs all = {};
  all.forward = args;
  all.e4m3 = forward.e4m3;
  all.keys_each = Tile::kKeys;
  const bool paged = args.kv.block_table != nullptr;
  if (paged) {
    const int32_t page = 1 << args.kv.page_shift;
    all.keys_each = page < Tile::kPagedKeys ? page : Tile::kPagedKeys;
  }
  all.clear_tail = paged || args.kv.cu_seqlens != nullptr ? 1 : 0;

  TensorShape q = {};
  q.data = args.query.q;
  q.columns = Tile::kColumns;
  q.rows = forward.q_rows;
  q.heads = args.schedule.n_heads.value;
  q.batches = args.query.cu_seqlens != nullptr ? 1 : forward.batch;
  q.row_stride = 2 * args.query.q_stride.row;
  q.head_stride = 2 * args.query.q_stride.head;
  q.batch_stride = 2 * args.query.q_stride.batch;
  q.box_columns = Tile::kPanel;
  q.box_rows = Tile::kRows;
  if (const auto status = encode_tensor_map(all.q, q)) return status;
  // Without keys K and V may be null, and their maps are not used.
  if (args.kv.seqlen > 0) {
    const auto k = key_tensor<Tile>(forward, args.kv.k, args.kv.k_stride, all.keys_each);
    const auto v = key_tensor<Tile>(forward, args.kv.v, args.kv.v_stride, all.keys_each);
    if (const auto status = encode_tensor_map(all.k, k)) return status;
    if (const auto status = encode_tensor_map(all.v, v)) return status;
  }

  // Blocks are persistent, one per multiprocessor. In a graph, the counter is cleared by a node of
  // its own, so that every replay begins with the first tiles.
  const int32_t blocks = std::min(args.schedule.tiles, forward.multiprocessors);
  if (blocks < args.schedule.tiles) {
    all.claimed = forward.counter;
    if (const auto status = clear_memory(all.claimed, sizeof *all.claimed, forward.stream)) {
      return status;
    }
  }
  const LaunchShape shape = {static_cast<uint32_t>(blocks), 1, 1, Tile::kThreads,
                             Tile::kSharedBytes};
  return launch(forward_sm90<T, kHeadDim, kCapped>, shape, forward.stream, all);
}

// T is the type of the inputs: f16, bf16 or e4m3_pair.
template <class T, int kHeadDim>
flash_attn_status launch_forward_sm90(const ForwardLaunch &forward) {
  return forward.args.score.softcap_scale > 0 ? launch_tile_sm90<T, kHeadDim, true>(forward)
                                              : launch_tile_sm90<T, kHeadDim, false>(forward);
}

}  // namespace flash_attn

#define FLASH_ATTN_FORWARD_SM90(head_dim)                                                      \
  namespace flash_attn {                                                                       \
  template int32_t forward_rows_sm90<head_dim>();                                              \
  template flash_attn_status launch_forward_sm90<f16, head_dim>(const ForwardLaunch &);        \
  template flash_attn_status launch_forward_sm90<bf16, head_dim>(const ForwardLaunch &);       \
  }

#define FLASH_ATTN_FORWARD_E4M3(head_dim)                                                      \
  namespace flash_attn {                                                                       \
  template flash_attn_status launch_forward_sm90<e4m3_pair, head_dim>(const ForwardLaunch &);  \
  }

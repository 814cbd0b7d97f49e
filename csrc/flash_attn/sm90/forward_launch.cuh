// Instantiates the forward kernel of SM90 for one head_dim, and describes its tensors.
#pragma once

#include "host/kernels.h"
#include "sm90/forward.cuh"

namespace flash_attn {

template <int kHeadDim>
int32_t forward_rows_sm90() {
  return Sm90Tile<kHeadDim>::kRows;
}

/// K or V of a launch, as boxes of `box_rows` keys.
template <int kHeadDim>
TensorShape key_tensor(const ForwardArgs &args, const void *data, const Strides &stride,
                       int64_t rows, int32_t box_rows) {
  TensorShape shape = {};
  shape.data = data;
  shape.columns = kHeadDim;
  // Without keys nothing is copied, but a tensor map must not have an empty dimension.
  shape.rows = rows > 0 ? rows : 1;
  shape.heads = args.n_heads / args.group;
  // The host does not know the number of pages; it depends on the block table.
  shape.batches = args.kv.block_table != nullptr  ? int64_t{1} << 31
                  : args.kv.cu_seqlens != nullptr ? 1
                                                  : args.batch;
  shape.row_stride = 2 * stride.row;
  shape.head_stride = 2 * stride.head;
  shape.batch_stride = 2 * stride.batch;
  shape.box_columns = Sm90Tile<kHeadDim>::kPanel;
  shape.box_rows = box_rows;
  return shape;
}

template <class T, int kHeadDim>
flash_attn_status launch_forward_sm90(const ForwardArgs &args, const TensorExtents &extents,
                                      const Device &device, void *stream) {
  using Tile = Sm90Tile<kHeadDim>;
  const bool packed_q = args.query.cu_seqlens != nullptr;
  const bool paged = args.kv.block_table != nullptr;
  Sm90ForwardArgs all = {};
  all.forward = args;
  all.keys_each = Tile::kKeys;
  if (paged) {
    const int32_t page = 1 << args.kv.page_shift;
    all.keys_each = page < Tile::kPagedKeys ? page : Tile::kPagedKeys;
  }
  all.clear_tail = paged || args.kv.cu_seqlens != nullptr ? 1 : 0;

  TensorShape q = {};
  q.data = args.query.q;
  q.columns = kHeadDim;
  q.rows = extents.q_rows > 0 ? extents.q_rows : 1;
  q.heads = args.n_heads;
  q.batches = packed_q ? 1 : args.batch;
  q.row_stride = 2 * args.query.q_stride.row;
  q.head_stride = 2 * args.query.q_stride.head;
  q.batch_stride = 2 * args.query.q_stride.batch;
  q.box_columns = Tile::kPanel;
  q.box_rows = Tile::kRows;
  const auto k = key_tensor<kHeadDim>(args, args.kv.k, args.kv.k_stride, extents.k_rows,
                                      all.keys_each);
  const auto v = key_tensor<kHeadDim>(args, args.kv.v, args.kv.v_stride, extents.k_rows,
                                      all.keys_each);
  if (const auto status = encode_tensor_map(all.q, q)) return status;
  if (const auto status = encode_tensor_map(all.k, k)) return status;
  if (const auto status = encode_tensor_map(all.v, v)) return status;

  // For sequences of one length, blocks are persistent, one per multiprocessor. For packed
  // sequences the host does not know the lengths, so the hardware schedules one block per tile.
  const int64_t tiles = int64_t{args.row_tiles} * args.n_heads * args.batch;
  const bool stay = !packed_q && tiles > device.multiprocessors;
  const LaunchShape shape = {static_cast<uint32_t>(stay ? device.multiprocessors : tiles), 1, 1,
                             Tile::kThreads, Tile::kSharedBytes};
  return launch(forward_sm90<T, kHeadDim>, shape, stream, all);
}

}  // namespace flash_attn

#define FLASH_ATTN_FORWARD_SM90(head_dim)                                                        \
  namespace flash_attn {                                                                         \
  template int32_t forward_rows_sm90<head_dim>();                                                \
  template flash_attn_status launch_forward_sm90<f16, head_dim>(                                 \
      const ForwardArgs &, const TensorExtents &, const Device &, void *);                       \
  template flash_attn_status launch_forward_sm90<bf16, head_dim>(                                \
      const ForwardArgs &, const TensorExtents &, const Device &, void *);                       \
  }

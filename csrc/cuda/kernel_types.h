#pragma once

// What kernels take by value and read from step inputs; the same structs are in kernels/cuda.

#include <cstdint>

#include "driver_api.h"

namespace forge::cuda {

// The pages of one layer: for each KV head of a page the keys [page_tokens, k_dim], their scales
// (Q8_0), the values [page_tokens, v_dim], their scales; each part padded to 16 bytes.
struct KvPages {
  DevicePointer data;
  uint64_t page_bytes;
  uint32_t head_bytes;
  uint32_t v_offset;  // from here on: byte offsets in a head
  uint32_t k_scales;
  uint32_t v_scales;
  uint32_t page_tokens;
  uint32_t n_kv_heads;
  uint32_t k_dim;
  uint32_t v_dim;
};
static_assert(sizeof(KvPages) == 48);

// out = residual + alpha * activation(product + bias); bias and residual may be 0.
struct Epilogue {
  DevicePointer bias;
  DevicePointer residual;
  float alpha;
  uint32_t activation;
};
static_assert(sizeof(Epilogue) == 24);

struct AttentionArgs {
  DevicePointer sinks;
  float scale;
  float softcap;
  uint32_t n_heads;
  uint32_t window;
  uint32_t causal;
  uint32_t max_queries;  // of a tile of decode attention
};
static_assert(sizeof(AttentionArgs) == 32);

// Consecutive rows of one sequence at consecutive positions, computed together by attention.
struct QueryTile {
  uint32_t first_row;
  uint32_t n_queries;
  uint32_t sequence;
  uint32_t first_position;
  uint32_t end;  // positions of the sequence that are there to be seen
};
static_assert(sizeof(QueryTile) == 20);

// A part of the positions that a tile of decode attention sees.
struct AttentionWork {
  uint32_t tile;
  uint32_t split;
  uint32_t first_work;  // the tile's entry of split 0
  uint32_t n_splits;
};
static_assert(sizeof(AttentionWork) == 16);

// Pairs of token and expert that are computed together.
struct MoeTile {
  uint32_t expert;
  uint32_t first;
  uint32_t count;
};
static_assert(sizeof(MoeTile) == 12);

}  // namespace forge::cuda

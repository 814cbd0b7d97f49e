// Converts rows of some tiles to another type: queries and results of attention by a library.
//
//   cols: a multiple of 4
//   grid: (cols / 1024, tiles, 8); block 256, four elements a thread of every eighth row of a tile
//   moves: 6 bytes an element

#include "attention.cuh"

DEVICE float4 load_four(const float* p) { return *reinterpret_cast<const float4*>(p); }
template <class T>
DEVICE float4 load_four(const T* p) {
  const uint2 v = *reinterpret_cast<const uint2*>(p);
  return make_float4(low_as(T{}, v.x), high_as(T{}, v.x), low_as(T{}, v.y), high_as(T{}, v.y));
}

template <class From, class To>
KERNEL cast_rows(CastRows a) {
  wait_for_previous_kernel();
  if (blockIdx.y >= *a.n_tiles) return;
  const QueryTile tile = a.tiles[blockIdx.y];
  const u32 i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (i >= a.cols) return;
  for (u32 row = blockIdx.z; row < tile.n_queries; row += gridDim.z) {
    const u64 at = u64(tile.first_row + row) * a.cols + i;
    store_four(static_cast<To*>(a.out) + at, load_four(static_cast<const From*>(a.in) + at));
  }
}

INSTANCE(cast_rows<float, f16>)
INSTANCE(cast_rows<float, bf16>)
INSTANCE(cast_rows<f16, float>)
INSTANCE(cast_rows<bf16, float>)

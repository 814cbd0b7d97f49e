// Reports which numbers of a SIMD group matrix each lane holds. Metal does not specify it, and the
// attention kernels rely on `matrix_place`; the host compares the two when it opens a GPU. Covers
// every kind of matrix that attention accesses by element: one of F32, one of F16, and a sum of
// products. Buffers and geometry: arguments.h; a single SIMD group.

#include "prelude.h"

template <class T>
inline void store_held(device float* held, simdgroup_matrix<T, 8, 8> matrix) {
  held[0] = float(matrix.thread_elements()[0]);
  held[1] = float(matrix.thread_elements()[1]);
}

kernel void matrix_places(device float* held [[buffer(0)]],
                          device const float* matrix [[buffer(1)]],
                          constant MatrixPlacesArgs& args [[buffer(2)]],
                          uint lane [[thread_index_in_simdgroup]]) {
  threadgroup half halves[64];
  threadgroup half identity[64];
  for (uint i = lane; i < 64; i += kLanes) {
    halves[i] = half(matrix[i / 8 * args.row_stride + i % 8]);
    identity[i] = half(i / 8 == i % 8 ? 1.0f : 0.0f);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  simdgroup_float8x8 floats, sums = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  simdgroup_half8x8 rounded, one;
  simdgroup_load(floats, matrix, args.row_stride);
  simdgroup_load(rounded, halves, 8);
  simdgroup_load(one, identity, 8);
  simdgroup_multiply_accumulate(sums, rounded, one, sums);
  device float* own = held + lane * 6;
  store_held(own, floats);
  store_held(own + 2, rounded);
  store_held(own + 4, sums);
}

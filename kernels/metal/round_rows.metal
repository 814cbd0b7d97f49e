// Rounds rows of x to F16 for gemm. Buffers and geometry: arguments.h.
//
// F16 has few exponents, so a row is divided by the power of two that moves its largest number into
// [16384, 32768), from where its smallest numbers lose least. That changes no digit; the row's
// products are multiplied by it again. gemm reads each row once for every 64 rows of a weight, so
// it saves half of these reads, and the conversions.

#include "row_set.h"
#include "simd.h"

inline float divisor_of(float largest) {
  if (!(largest > 0 && largest < INFINITY)) return 1.0f;
  // From the bits of the exponent alone; the smallest divisor is 2^-126.
  const uint exponent = max(as_type<uint>(largest) >> 23, 15u);
  return as_type<float>((exponent - 14) << 23);
}

kernel void round_rows(
    device half* out [[buffer(0)]], device float* factors [[buffer(1)]],
    device const float* x [[buffer(2)]], device const uint* n_rows [[buffer(3)]],
    device const uint* row_list [[buffer(4)]], constant RoundRowsArgs& args [[buffer(5)]],
    uint2 at [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup float maxima[kLanes];
  const RowSet set = row_set(n_rows, row_list, args.has_row_list);
  if (at.x >= set.count) return;
  const Place p = {thread_index, lane, simdgroup, n_simdgroups};
  const ulong row = ulong(row_of(set, at.x)) * args.pieces + at.y;
  device const float* from = x + row * args.cols;
  float largest = 0;
  for (uint k = 4 * thread_index; k < args.cols; k += 4 * threads_of(p)) {
    const float4 v = load_four(from, k, args.cols);
    largest = fmax(largest, fmax(fmax(fabs(v.x), fabs(v.y)), fmax(fabs(v.z), fabs(v.w))));
  }
  const float divisor = divisor_of(group_max(largest, maxima, p)), factor = 1.0f / divisor;
  const uint stride = rounded_cols(args.cols);
  device half4* to = (device half4*)(out + row * stride);
  for (uint k = 4 * thread_index; k < stride; k += 4 * threads_of(p)) {
    to[k / 4] = half4(load_four(from, k, args.cols) * factor);
  }
  if (thread_index == 0) factors[row] = divisor;
}

// Each instruction of the kernels by itself: the functions of prelude.cuh, ptx.cuh and warp.cuh,
// and built-in functions whose results kernels depend on. instructions_test.cpp checks the results
// of the emulator and of a GPU.

#include "ptx.cuh"
#include "warp.cuh"

// widened[0][i] and [1][i]: the F16 and the BF16 of bits i; grid: 65536 threads.
KERNEL widen_numbers(float* widened) {
  wait_for_previous_kernel();
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  widened[i] = to_float(f16{u16(i)});
  widened[65536 + i] = to_float(bf16{u16(i)});
}
INSTANCE(widen_numbers)

// narrowed[i]: F16 in the low half, BF16 in the high half; packed: two F16, two BF16.
KERNEL narrow_numbers(u32* narrowed, u32* packed, const float* x, u32 n) {
  wait_for_previous_kernel();
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  narrowed[i] = to_f16(x[i]).bits | u32(to_bf16(x[i]).bits) << 16;
  packed[2 * i] = pack_as(f16{}, x[i], x[(i + 1) % n]);
  packed[2 * i + 1] = pack_as(bf16{}, x[i], x[(i + 1) % n]);
}
INSTANCE(narrow_numbers)

KERNEL spread_bytes(float4* out, const u32* words, float bias) {
  wait_for_previous_kernel();
  out[threadIdx.x] = bytes_to_floats(words[threadIdx.x], bias);
}
INSTANCE(spread_bytes)

// out[i]: the difference and the product of words of two F16; bytes[i]: the halves of a word.
KERNEL combine_halves(uint2* out, uint2* bytes, const u32* a, const u32* b) {
  wait_for_previous_kernel();
  const u32 i = threadIdx.x;
  out[i] = make_uint2(subtract_halves(a[i], b[i]), multiply_halves(a[i], b[i]));
  bytes[i] = bytes_to_halves(a[i]);
}
INSTANCE(combine_halves)

// out[i]: a b + c, and the bits of a under the mask b with those of c.
KERNEL fuse_words(uint2* out, const u32* a, const u32* b, const u32* c) {
  wait_for_previous_kernel();
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = make_uint2(fma_halves(a[i], b[i], c[i]), and_or(a[i], b[i], c[i]));
}
INSTANCE(fuse_words)

KERNEL raise_two(float* out, const float* x) {
  wait_for_previous_kernel();
  out[threadIdx.x] = fast_exp2(x[threadIdx.x]);
}
INSTANCE(raise_two)

KERNEL stream_words(uint4* out, const uint4* in, u32 n) {
  wait_for_previous_kernel();
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = load_streaming(in + i);
}
INSTANCE(stream_words)

// Three copies per thread, each in its own group, stored as they arrive: out[group][thread].
KERNEL copy_in_groups(uint4* out, const uint4* in, const u32* valid) {
  wait_for_previous_kernel();
  SHARED(uint4, landed, [3][64]);
  for (u32 group = 0; group < 3; ++group) {
    const u32 i = group * 64 + threadIdx.x;
    copy_async_16(&landed[group][threadIdx.x], in + i, valid[i] != 0);
    commit_copies();
  }
  wait_copies<2>();
  out[threadIdx.x] = landed[0][threadIdx.x];
  wait_copies<1>();
  out[64 + threadIdx.x] = landed[1][threadIdx.x];
  wait_copies<0>();
  out[128 + threadIdx.x] = landed[2][threadIdx.x];
}
INSTANCE(copy_in_groups)

// in: 32 rows of 8 numbers, four matrices; out[lane][8]: unchanged, then transposed.
KERNEL load_four_matrices(u32* out, const u16* in) {
  wait_for_previous_kernel();
  SHARED(u16, rows, [32][24]);  // rows of 48 bytes
  for (u32 i = 0; i < 8; ++i) rows[threadIdx.x][i] = in[threadIdx.x * 8 + i];
  __syncthreads();
  u32 plain[4], transposed[4];
  load_matrices(plain, rows[threadIdx.x]);
  load_matrices_transposed(transposed, rows[threadIdx.x]);
  for (u32 i = 0; i < 4; ++i) {
    out[threadIdx.x * 8 + i] = plain[i];
    out[threadIdx.x * 8 + 4 + i] = transposed[i];
  }
}
INSTANCE(load_four_matrices)

// c[16, 8] += a[16, 16] b[16, 8], all row-major.
template <class T>
KERNEL multiply_matrices(float* c, const T* a, const T* b) {
  wait_for_previous_kernel();
  const u32 g = lane_id() / 4, t = lane_id() % 4;
  u32 left[4], right[2];
  for (u32 i = 0; i < 4; ++i) {
    const T* pair = a + (g + 8 * (i % 2)) * 16 + 2 * t + 8 * (i / 2);
    left[i] = pack(pair[0], pair[1]);
  }
  for (u32 i = 0; i < 2; ++i) {
    const T* pair = b + (2 * t + 8 * i) * 8 + g;
    right[i] = pack(pair[0], pair[8]);
  }
  float sums[4];
  for (u32 i = 0; i < 4; ++i) sums[i] = c[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2];
  multiply_add(T{}, sums, left, right[0], right[1]);
  for (u32 i = 0; i < 4; ++i) c[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = sums[i];
}
INSTANCE(multiply_matrices<f16>)
INSTANCE(multiply_matrices<bf16>)

// From the numbers of 256 threads: sums[0..7] and largest[0..7] of warps, [8] of the block.
KERNEL reduce_numbers(double* sums, float* largest, u64* counts, const float* x) {
  wait_for_previous_kernel();
  SHARED(double, sum_partial, [kWarp]);
  SHARED(float, max_partial, [kWarp]);
  SHARED(u64, count_partial, [kWarp]);
  const float own = x[threadIdx.x];
  const double sum = warp_sum(double(own));
  const float most = warp_max(own);
  if (lane_id() == 31) {
    sums[warp_id()] = sum;
    largest[warp_id()] = most;
  }
  const double all = block_sum(double(own), sum_partial);
  const float most_of_all = block_max(own, max_partial);
  const u64 count = block_sum(u64(threadIdx.x) << 33, count_partial);
  counts[threadIdx.x] = count;
  if (threadIdx.x == 200) {
    sums[8] = all;
    largest[8] = most_of_all;
  }
}
INSTANCE(reduce_numbers)

// out[lane][9]
KERNEL exchange_lanes(u64* out, const u64* in) {
  wait_for_previous_kernel();
  const u32 lane = lane_id();
  const u64 own = in[lane];
  u64* to = out + lane * 9;
  to[0] = __shfl_sync(kAllLanes, own, 7);
  to[1] = __shfl_sync(kAllLanes, own, (lane * 5 + 3) % 32);
  to[2] = __shfl_xor_sync(kAllLanes, own, 9);
  to[3] = __shfl_up_sync(kAllLanes, own, 4);
  to[4] = __shfl_down_sync(kAllLanes, own, 6);
  to[5] = __ballot_sync(kAllLanes, (own & 1) != 0);
  to[6] = u64(u32(__clz(i32(u32(own))))) << 32 | u32(__ffs(i32(u32(own))));
  to[7] = u64(__byte_perm(u32(own), u32(own >> 32), 0x6240)) << 32 | u32(__popc(u32(own)));
  to[8] = __match_any_sync(kAllLanes, u32(own % 5));
}
INSTANCE(exchange_lanes)

// 256 threads update the same addresses.
KERNEL count_atomically(u32* shared_sum, u32* global_sum, float* float_sum, u32* lowest,
                        u32* taken) {
  wait_for_previous_kernel();
  SHARED(u32, sum, [1]);
  if (threadIdx.x == 0) sum[0] = 0;
  __syncthreads();
  atomicAdd(&sum[0], threadIdx.x << 16);
  atomicAdd(global_sum, threadIdx.x);
  atomicAdd(float_sum, 0.5f);
  atomicMin(lowest, 1000u - threadIdx.x);
  if (atomicExch(taken, 1u) == 0) atomicAdd(taken + 1, 1u);
  __syncthreads();
  if (threadIdx.x == 7) shared_sum[0] = sum[0];
}
INSTANCE(count_atomically)

constexpr u32 kFunctions = 10;

// out[function][i] for positive numbers.
KERNEL compute_functions(float* out, const float* x, u32 n) {
  wait_for_previous_kernel();
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float own = x[i], small = own > 80.0f ? 80.0f : own;
  const float results[kFunctions] = {expf(-small), exp2f(-small), tanhf(small), cosf(own),
                                     sinf(own),    sqrtf(own),    1.0f / own,   erff(small),
                                     rintf(own),   log1pf(own)};
  for (u32 f = 0; f < kFunctions; ++f) out[f * n + i] = results[f];
}
INSTANCE(compute_functions)

// Subnormal numbers must not be flushed when read or written.
KERNEL halve_numbers(float* out, const float* x) {
  wait_for_previous_kernel();
  out[threadIdx.x] = x[threadIdx.x] * 0.5f + 0.0f;
}
INSTANCE(halve_numbers)

#pragma once

// Rows of x as 16-bit floats, which tensor cores multiply: converted by convert_rows.cu or by the
// blocks of a product. If an RMSNorm precedes the product, a row is normalized here.
//
// F16 has few exponents. A row whose largest number is below 2^-6 or at least 2^15 is therefore
// divided by the power of two that moves that number into [2^14, 2^15), by which its product is
// multiplied in the end. Products of other rows, which rows of models are expected to be, have no
// scale: those that a library computes need no second pass. Numbers below 2^-14, which F16
// represents with fewer digits, are off by 2^-25 at most, where the largest one of the row may be
// by 2^-17 or more. Sums are in F32.

#include "row_set.cuh"
#include "warp.cuh"

// The threads of a block that add the squares of a row with a norm: every kernel adds them in one
// order.
constexpr u32 kRowThreads = 256;

// True if rows of a type are divided.
template <class T>
constexpr bool kScalesRows = true;
template <>
constexpr bool kScalesRows<bf16> = false;

// The divisor of a row, given its largest |x|.
DEVICE float divisor_of_row(f16, float largest) {
  if (!(largest > 0 && largest < FORGE_INFINITY)) return 1.0f;
  if (largest >= 0x1p-6f && largest < 0x1p15f) return 1.0f;
  // From the exponent bits alone; the smallest divisor is 2^-126.
  const u32 exponent = max(__float_as_uint(largest) >> 23, 15u);
  return __uint_as_float((exponent - 14) << 23);
}
DEVICE float divisor_of_row(bf16, float) { return 1.0f; }

// Returns columns first .. first + 7 of a row; zeros beyond the last. `now`: by load_now.
template <bool now = false>
DEVICE void load_eight(const float* x, u32 first, u32 cols, float (&v)[8]) {
  if (cols % 4 == 0) {
#pragma unroll
    for (u32 i = 0; i < 8; i += 4) {
      const float4* from = reinterpret_cast<const float4*>(x + first + i);
      float4 four = make_float4(0, 0, 0, 0);
      if (first + i < cols) four = now ? load_now(from) : *from;
      v[i] = four.x;
      v[i + 1] = four.y;
      v[i + 2] = four.z;
      v[i + 3] = four.w;
    }
    return;
  }
#pragma unroll
  for (u32 i = 0; i < 8; ++i) v[i] = first + i < cols ? x[first + i] : 0.0f;
}

// Multiplies columns of a row by the norm's weight, if it has a norm, and adds their squares before
// that.
DEVICE void apply_norm(const InputNorm& norm, const float (&weight)[8], float (&v)[8],
                       float& squares) {
  if (!norm.weight) return;
#pragma unroll
  for (u32 i = 0; i < 8; ++i) {
    squares += v[i] * v[i];
    v[i] *= weight[i] + norm.offset;
  }
}

// Columns 8 threadIdx.x .. 8 threadIdx.x + 7 of a row and of its norm's weight, loaded before the
// block knows that it has a row.
struct RowStart {
  float x[8] STEP_ZEROS, weight[8] STEP_ZEROS;
};
DEVICE RowStart start_row(const float* x, const InputNorm& norm, u32 cols) {
  RowStart start;
  load_eight<true>(x, threadIdx.x * 8, cols, start.x);
  if (norm.weight) load_eight<true>(norm.weight, threadIdx.x * 8, cols, start.weight);
  return start;
}

// Loads columns first .. first + 7 of a row, normalized but for the factor 1 / rms. All loads are
// in flight together.
DEVICE void load_normed(const float* x, const InputNorm& norm, u32 first, u32 cols, float (&v)[8],
                        float& squares) {
  float weight[8];
  load_eight(x, first, cols, v);
  if (norm.weight) load_eight(norm.weight, first, cols, weight);
  apply_norm(norm, weight, v, squares);
}

// The order of columns of wgmma_quantized.cuh: of 4 chunk_cols columns, a lane t of four has chunk
// t, of which each product of 16 columns takes four. Pair t of unit n of the row in this order
// begins at this column.
DEVICE u32 column_in_chunks(u32 n, u32 t, u32 chunk_cols) {
  const u32 units = chunk_cols / 2;
  return n / units * (4 * chunk_cols) + t * chunk_cols + n % units * 2;
}

// Loads unit n of a row in this order; zeros beyond the last column.
DEVICE void load_pairs(const float* x, u32 n, u32 chunk_cols, u32 cols, float (&v)[8]) {
#pragma unroll
  for (u32 t = 0; t < 4; ++t) {
    const u32 column = column_in_chunks(n, t, chunk_cols);
    float2 pair = make_float2(0, 0);
    // Columns of quantised weights are a multiple of 32.
    if (column < cols) pair = *reinterpret_cast<const float2*>(x + column);
    v[2 * t] = pair.x;
    v[2 * t + 1] = pair.y;
  }
}

struct RowScale {
  float factor;   // of numbers before they are rounded
  float product;  // of the product
};

// All threads of a block must call this, at least kRowThreads. Applies the norm to `start`.
template <u32 threads = kRowThreads, class T>
DEVICE RowScale scale_of_row(T type, const float* x, const InputNorm& norm, RowStart& start,
                             u32 cols) {
  SHARED(float, maxima, [kWarp]);
  SHARED(float, sums, [kWarp]);
  if (!kScalesRows<T> && !norm.weight) return {1.0f, 1.0f};
  float largest = 0, squares = 0;
  const auto add = [&](const float (&v)[8]) {
#pragma unroll
    for (u32 i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(v[i]));
  };
  apply_norm(norm, start.weight, start.x, squares);
  add(start.x);
  const u32 step = norm.weight ? kRowThreads : threads;
  if (threads == kRowThreads || threadIdx.x < step) {
    for (u32 unit = threadIdx.x + step; unit * 8 < cols; unit += step) {
      float v[8];
      load_normed(x, norm, unit * 8, cols, v, squares);
      add(v);
    }
  } else {
    squares = 0;
  }
  float factor = 1.0f, divisor = 1.0f;
  if (norm.weight) factor /= sqrtf(block_sum(squares, sums) / float(cols) + norm.eps);
  if constexpr (kScalesRows<T>) divisor = divisor_of_row(type, block_max(largest, maxima) * factor);
  return {factor / divisor, divisor};
}

template <class T>
DEVICE uint4 packed(T type, const float (&v)[8], float factor) {
  return make_uint4(pack_as(type, v[0] * factor, v[1] * factor),
                    pack_as(type, v[2] * factor, v[3] * factor),
                    pack_as(type, v[4] * factor, v[5] * factor),
                    pack_as(type, v[6] * factor, v[7] * factor));
}

// Columns 8 unit .. 8 unit + 7 of a row, rounded; zeros beyond the last. `start`: as scale_of_row
// left it.
template <class T>
DEVICE uint4 rounded_unit(T type, const float* x, const InputNorm& norm, const RowStart& start,
                          u32 unit, u32 cols, float factor) {
  if (unit == threadIdx.x) return packed(type, start.x, factor);
  float v[8], squares = 0;
  load_normed(x, norm, unit * 8, cols, v, squares);
  return packed(type, v, factor);
}

// The same in the order of chunks.
template <class T>
DEVICE uint4 rounded_pairs(T type, const float* x, const InputNorm& norm, u32 unit, u32 chunk_cols,
                           u32 cols, float factor) {
  float v[8], weight[8], squares = 0;
  load_pairs(x, unit, chunk_cols, cols, v);
  if (norm.weight) load_pairs(norm.weight, unit, chunk_cols, cols, weight);
  apply_norm(norm, weight, v, squares);
  return packed(type, v, factor);
}

// Converts a row to row number `row` of a.out; all threads of a block.
template <class T, u32 threads>
DEVICE void convert_row(const ConvertRows& a, const float* from, u64 row) {
  const u32 units = a.padded_cols / 8;
  uint4* to = static_cast<uint4*>(a.out) + row * units;
  RowStart start = start_row(from, a.norm, a.cols);
  const RowScale scale = scale_of_row<threads>(T{}, from, a.norm, start, a.cols);
  for (u32 unit = threadIdx.x; unit < units; unit += threads) {
    to[unit] =
        a.chunk_cols == 0
            ? rounded_unit(T{}, from, a.norm, start, unit, a.cols, scale.factor)
            : rounded_pairs(T{}, from, a.norm, unit, a.chunk_cols, a.cols, scale.factor);
  }
  if (threadIdx.x == 0) a.scale[row] = scale.product;
}

// Converts the rows of a set by all blocks of a kernel. A block takes rows until none is left, and
// then waits for those that others have taken: it never waits for a block that does not run yet.
template <class T, u32 threads>
DEVICE void convert_together(const SharedConversion& a) {
  SHARED(u32, taken, [1]);
  if (a.rows.x == nullptr) return;
  const u32 count = *a.rows.set.count, n_blocks = gridDim.x * gridDim.y;
  u32 *next = a.counters, *done = a.counters + 1, *left = a.counters + 2;
  for (;;) {
    // Every block takes one number beyond the last row. The last number resets the counter.
    if (threadIdx.x == 0) taken[0] = atomicInc(next, count + n_blocks - 1);
    __syncthreads();
    const u32 row = taken[0];
    if (row >= count) break;
    const float* from = a.rows.x + u64(row_of_set(a.rows.set, row)) * a.rows.cols;
    convert_row<T, threads>(a.rows, from, row);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(done, 1u);
  }
  if (threadIdx.x == 0) {
    await_count(done, count);
    if (atomicInc(left, n_blocks - 1) == n_blocks - 1) *done = 0;
    __threadfence();
  }
  __syncthreads();
}

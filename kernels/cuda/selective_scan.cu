// The scan of a selective state space with a scalar decay for each head (T. Dao and A. Gu,
// "Transformers are SSMs", 2024). For each token of a run in order, with S [d_state, head_dim] of a
// head, and b and c of its group:
//
//   dt = log(1 + exp(dt + dt_bias)) within limits, decay = exp(rate dt)
//   S = decay S + b (dt x);  out = (c S + skip x) silu(gate)
//
//   xbc [tokens, n_heads head_dim (x) | n_groups d_state (b) | n_groups d_state (c)]
//   dt [tokens, n_heads], rate, dt_bias, skip [n_heads], gate like out
//   state: slots of [head_dim, n_heads, d_state], slot_stride numbers apart
//   out [tokens, n_heads head_dim]; all F32
//   grid: (head_dim / 16, n_heads, runs); block 128
//   moves: S of each head in and out once per run; b and c once per 16 columns of a head
//
// The columns of S are independent. Eight lanes hold a column in registers during the whole run,
// four neighbouring rows at a time, so that b and c are read from shared memory in loads of 16
// bytes, shared by the four columns of a warp. The inputs of 16 tokens at a time are in shared
// memory.

#include "recurrence.cuh"

constexpr u32 kColumns = kScanColumns, kLanes = kScanLanes, kThreads = kColumns * kLanes;
constexpr u32 kTokens = 16;

// Rows row .. row + 3 of a column of n rows, with zeros from the n-th on.
DEVICE float4 load_rows(const float* column, u32 row, u32 n) {
  if (n % 4 == 0) {
    return row < n ? *reinterpret_cast<const float4*>(column + row) : make_float4(0, 0, 0, 0);
  }
  return make_float4(row < n ? column[row] : 0.0f, row + 1 < n ? column[row + 1] : 0.0f,
                     row + 2 < n ? column[row + 2] : 0.0f, row + 3 < n ? column[row + 3] : 0.0f);
}
DEVICE void store_rows(float* column, u32 row, u32 n, float4 v) {
  if (n % 4 == 0) {
    if (row < n) *reinterpret_cast<float4*>(column + row) = v;
    return;
  }
  if (row < n) column[row] = v.x;
  if (row + 1 < n) column[row + 1] = v.y;
  if (row + 2 < n) column[row + 2] = v.z;
  if (row + 3 < n) column[row + 3] = v.w;
}

template <u32 fours>
__global__ void __launch_bounds__(kThreads, 4) selective_scan(SelectiveScan a) {
  wait_for_previous_kernel();
  constexpr u32 kRows = fours * 4 * kLanes;
  SHARED(float4, b_fours, [kTokens][fours * kLanes]);
  SHARED(float4, c_fours, [kTokens][fours * kLanes]);
  SHARED(float, values, [kTokens][kColumns]);
  SHARED(float, gates, [kTokens][kColumns]);
  SHARED(float, steps, [kTokens]);
  SHARED(float, decays, [kTokens]);
  const SlotRun run = a.runs[blockIdx.z];
  if (run.n_rows == 0) return;
  const u32 head = blockIdx.y, group = head / (a.n_heads / a.n_groups);
  const u32 inner = a.n_heads * a.head_dim, xbc_cols = inner + 2 * a.n_groups * a.d_state;
  const u32 first_column = blockIdx.x * kColumns;
  const u32 own = threadIdx.x / kLanes, lane = threadIdx.x % kLanes, column = first_column + own;
  const bool has_column = column < a.head_dim;
  float* kept = a.state + run.slot * a.slot_stride + (u64(column) * a.n_heads + head) * a.d_state;
  const float skip = a.skip[head];

  float4 S[fours];
#pragma unroll
  for (u32 i = 0; i < fours; ++i) {
    const bool is_kept = has_column && !run.from_zero;
    S[i] = is_kept ? load_rows(kept, (i * kLanes + lane) * 4, a.d_state) : make_float4(0, 0, 0, 0);
  }
  for (u32 first = 0; first < run.n_rows; first += kTokens) {
    const u32 n = min(kTokens, run.n_rows - first);
    const u64 first_row = u64(run.first_row) + first;
    __syncthreads();
    for (u32 i = warp_id(); i < 2 * n; i += kThreads / kWarp) {
      const u32 t = i / 2, is_c = i % 2;
      const float* from = a.xbc + (first_row + t) * xbc_cols + inner +
                          (is_c * a.n_groups + group) * a.d_state;
      float* to = reinterpret_cast<float*>(is_c ? c_fours[t] : b_fours[t]);
      for (u32 j = lane_id(); j < kRows; j += kWarp) to[j] = j < a.d_state ? from[j] : 0.0f;
    }
    for (u32 i = threadIdx.x; i < n * kColumns; i += kThreads) {
      const u32 t = i / kColumns, c = i % kColumns, at = head * a.head_dim + first_column + c;
      const bool exists = first_column + c < a.head_dim;
      values[t][c] = exists ? a.xbc[(first_row + t) * xbc_cols + at] : 0.0f;
      if (a.has_gate) {
        const float gate = exists ? a.gate[(first_row + t) * inner + at] : 0.0f;
        gates[t][c] = gate * sigmoid(gate);
      }
    }
    if (threadIdx.x < n) {
      const float dt = a.dt[(first_row + threadIdx.x) * a.n_heads + head];
      // Comparisons, since fminf and fmaxf would drop a NaN.
      float step = softplus(dt + a.dt_bias[head]);
      step = step < a.dt_min ? a.dt_min : step > a.dt_max ? a.dt_max : step;
      steps[threadIdx.x] = step;
      decays[threadIdx.x] = expf(a.rate[head] * step);
    }
    __syncthreads();

    for (u32 t = 0; t < n; ++t) {
      const float decay = decays[t], x = values[t][own], input = steps[t] * x;
      float sum = 0;
#pragma unroll
      for (u32 i = 0; i < fours; ++i) {
        const float4 b = b_fours[t][i * kLanes + lane], c = c_fours[t][i * kLanes + lane];
        S[i].x = decay * S[i].x + b.x * input;
        S[i].y = decay * S[i].y + b.y * input;
        S[i].z = decay * S[i].z + b.z * input;
        S[i].w = decay * S[i].w + b.w * input;
        sum += c.x * S[i].x;
        sum += c.y * S[i].y;
        sum += c.z * S[i].z;
        sum += c.w * S[i].w;
      }
      sum = column_sum<kLanes>(sum) + skip * x;
      if (a.has_gate) sum *= gates[t][own];
      if (lane == 0 && has_column) {
        a.out[(first_row + t) * inner + head * a.head_dim + column] = sum;
      }
    }
  }
  if (!has_column) return;
#pragma unroll
  for (u32 i = 0; i < fours; ++i) {
    store_rows(kept, (i * kLanes + lane) * 4, a.d_state, S[i]);
  }
}

INSTANCE(selective_scan<2>)
INSTANCE(selective_scan<4>)
INSTANCE(selective_scan<8>)

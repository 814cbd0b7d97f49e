// Linear attention by the gated delta rule (S. Yang, J. Kautz and A. Hatamizadeh, "Gated Delta
// Networks", 2024). For each token of a run in order, with S [k_dim, v_dim] of a value head:
//
//   q = scale q / sqrt(sum(q^2) + eps), k = k / sqrt(sum(k^2) + eps)
//   beta = sigmoid(b), decay = exp(rate log(1 + exp(a + dt_bias)))
//   S = decay S;  S = S + k (beta (v - k S));  out = q S
//
//   qkv [tokens, n_k_heads k_dim (q) | n_k_heads k_dim (k) | n_v_heads v_dim (v)]
//   ba [tokens, n_v_heads (b) | n_v_heads (a)], rate, dt_bias [n_v_heads]
//   state: slots of [v_dim, n_v_heads, k_dim], slot_stride numbers apart
//   out [tokens, n_v_heads v_dim]; all F32
//   grid: (v_dim / 16, n_v_heads, runs); block 128
//   moves: S of each head in and out once per run; q and k once per 16 columns of v
//
// The columns of S are independent. Eight lanes hold a column in registers, `rows` numbers each,
// during the whole run. The inputs of 16 tokens at a time are in shared memory, normalized by whole
// warps. The sums of a column are added in the same order for every token of every run.

#include "recurrence.cuh"

constexpr u32 kColumns = kDeltaColumns, kLanes = kDeltaLanes, kThreads = kColumns * kLanes;
constexpr u32 kTokens = 16;

// to[size] = from[n] * factor / sqrt(sum(from^2) + eps), then zeros. Called by a whole warp.
DEVICE void normalize(float* to, u32 size, const float* from, u32 n, float factor, float eps) {
  float squares = 0;
  for (u32 i = lane_id(); i < n; i += kWarp) squares += from[i] * from[i];
  const float scale = factor / sqrtf(warp_sum(squares) + eps);
  for (u32 i = lane_id(); i < size; i += kWarp) to[i] = i < n ? from[i] * scale : 0.0f;
}

template <u32 rows>
__global__ void __launch_bounds__(kThreads, 4)
    gated_delta_rule(GatedDeltaRule a) {
  wait_for_previous_kernel();
  constexpr u32 kRows = rows * kLanes;
  SHARED(float, queries, [kTokens][kRows]);
  SHARED(float, keys, [kTokens][kRows]);
  SHARED(float, values, [kTokens][kColumns]);
  SHARED(float, betas, [kTokens]);
  SHARED(float, decays, [kTokens]);
  const SlotRun run = a.runs[blockIdx.z];
  if (run.n_rows == 0) return;
  const u32 head = blockIdx.y;
  const u32 key_head = a.is_tiled ? head % a.n_k_heads : head / (a.n_v_heads / a.n_k_heads);
  const u32 k_cols = a.n_k_heads * a.k_dim, v_cols = a.n_v_heads * a.v_dim;
  const u32 qkv_cols = 2 * k_cols + v_cols;
  const u32 first_column = blockIdx.x * kColumns;
  const u32 own = threadIdx.x / kLanes, lane = threadIdx.x % kLanes, column = first_column + own;
  const bool has_column = column < a.v_dim;
  float* kept = a.state + run.slot * a.slot_stride + (u64(column) * a.n_v_heads + head) * a.k_dim;

  float S[rows];
#pragma unroll
  for (u32 i = 0; i < rows; ++i) {
    const u32 row = i * kLanes + lane;
    S[i] = has_column && row < a.k_dim && !run.from_zero ? kept[row] : 0.0f;
  }
  for (u32 first = 0; first < run.n_rows; first += kTokens) {
    const u32 n = min(kTokens, run.n_rows - first);
    const u64 first_row = u64(run.first_row) + first;
    __syncthreads();
    for (u32 i = warp_id(); i < 2 * n; i += kThreads / kWarp) {
      const u32 t = i / 2;
      const float* q = a.qkv + (first_row + t) * qkv_cols + key_head * a.k_dim;
      if (i % 2 == 0) {
        normalize(queries[t], kRows, q, a.k_dim, a.scale, a.eps);
      } else {
        normalize(keys[t], kRows, q + k_cols, a.k_dim, 1.0f, a.eps);
      }
    }
    for (u32 i = threadIdx.x; i < n * kColumns; i += kThreads) {
      const u32 t = i / kColumns, c = i % kColumns;
      const float* row = a.qkv + (first_row + t) * qkv_cols;
      const float* v = row + 2 * k_cols + head * a.v_dim + first_column;
      values[t][c] = first_column + c < a.v_dim ? v[c] : 0.0f;
    }
    if (threadIdx.x < n) {
      const float* b = a.ba + (first_row + threadIdx.x) * 2 * a.n_v_heads + head;
      betas[threadIdx.x] = sigmoid(b[0]);
      decays[threadIdx.x] = expf(a.rate[head] * softplus(b[a.n_v_heads] + a.dt_bias[head]));
    }
    __syncthreads();

    for (u32 t = 0; t < n; ++t) {
      float known = 0;
#pragma unroll
      for (u32 i = 0; i < rows; ++i) known += keys[t][i * kLanes + lane] * S[i];
      const float decay = decays[t];
      const float change = betas[t] * (values[t][own] - decay * column_sum<kLanes>(known));
      float sum = 0;
#pragma unroll
      for (u32 i = 0; i < rows; ++i) {
        S[i] = decay * S[i] + keys[t][i * kLanes + lane] * change;
        sum += queries[t][i * kLanes + lane] * S[i];
      }
      sum = column_sum<kLanes>(sum);
      if (lane == 0 && has_column) a.out[(first_row + t) * v_cols + head * a.v_dim + column] = sum;
    }
  }
#pragma unroll
  for (u32 i = 0; i < rows; ++i) {
    const u32 row = i * kLanes + lane;
    if (has_column && row < a.k_dim) kept[row] = S[i];
  }
}

INSTANCE(gated_delta_rule<2>)
INSTANCE(gated_delta_rule<4>)
INSTANCE(gated_delta_rule<8>)
INSTANCE(gated_delta_rule<16>)
INSTANCE(gated_delta_rule<32>)

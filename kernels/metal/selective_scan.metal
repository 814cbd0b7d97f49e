// The scan of a selective state space with a scalar decay for each head (T. Dao and A. Gu,
// "Transformers are SSMs", 2024). For each token of a run in order, with S [d_state, head_dim] of a
// head, and b and c of its group:
//
//   dt = log(1 + exp(dt + dt_bias)) within limits, decay = exp(rate dt)
//   S = decay S + b (dt x);  out = (c S + skip x) silu(gate)
//
// Buffers and geometry: state_arguments.h.
//
// The columns of S are independent. Eight lanes hold a column in registers during the whole run,
// four neighbouring rows at a time, so that b and c are read from threadgroup memory in loads of 16
// bytes, shared by the four columns of a SIMD group. The inputs of 8 tokens at a time are in
// threadgroup memory.

#include "recurrence.h"

CONSTANT uint kThreads = kScanColumns * kScanLanes, kTokens = 8;

template <uint fours>
[[kernel, max_total_threads_per_threadgroup(128)]] void selective_scan(
    device float* out [[buffer(0)]], device const float* xbc [[buffer(1)]],
    device const float* dt [[buffer(2)]], device const float* gate [[buffer(3)]],
    device const float* rate [[buffer(4)]], device const float* dt_bias [[buffer(5)]],
    device const float* skip [[buffer(6)]], device float* state [[buffer(7)]],
    device const SlotRun* runs [[buffer(8)]], constant SelectiveScanArgs& args [[buffer(9)]],
    uint3 at [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint simd_lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float4 b_fours[kTokens][fours * kScanLanes];
  threadgroup float4 c_fours[kTokens][fours * kScanLanes];
  threadgroup float values[kTokens][kScanColumns];
  threadgroup float gates[kTokens][kScanColumns];
  threadgroup float steps[kTokens];
  threadgroup float decays[kTokens];
  const SlotRun run = runs[at.z];
  if (run.n_rows == 0) return;
  const uint n_heads = args.n_heads, n_groups = args.n_groups, head_dim = args.head_dim;
  const uint d_state = args.d_state, rows = fours * 4 * kScanLanes;
  const uint head = at.y, group = head / (n_heads / n_groups);
  const uint inner = n_heads * head_dim, xbc_cols = inner + 2 * n_groups * d_state;
  const uint first_column = at.x * kScanColumns;
  const uint own = thread_index / kScanLanes, lane = thread_index % kScanLanes;
  const uint column = first_column + own;
  const bool has_column = column < head_dim;
  device float* kept =
      state + run.slot * args.slot_stride + (ulong(column) * n_heads + head) * d_state;

  float4 S[fours];
  UNROLL
  for (uint i = 0; i < fours; ++i) {
    const bool is_kept = has_column && run.from_zero == 0;
    S[i] = is_kept ? load_rows(kept, (i * kScanLanes + lane) * 4, d_state) : float4(0.0f);
  }
  for (uint first = 0; first < run.n_rows; first += kTokens) {
    const uint n = min(kTokens, run.n_rows - first);
    const ulong first_row = ulong(run.first_row) + first;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = simdgroup; i < 2 * n; i += kThreads / kLanes) {
      const uint t = i / 2, is_c = i % 2;
      device const float* from =
          xbc + (first_row + t) * xbc_cols + inner + (is_c * n_groups + group) * d_state;
      threadgroup float* to =
          is_c != 0 ? (threadgroup float*)c_fours[t] : (threadgroup float*)b_fours[t];
      for (uint j = simd_lane; j < rows; j += kLanes) to[j] = j < d_state ? from[j] : 0.0f;
    }
    for (uint i = thread_index; i < n * kScanColumns; i += kThreads) {
      const uint t = i / kScanColumns, c = i % kScanColumns;
      const uint place = head * head_dim + first_column + c;
      const bool exists = first_column + c < head_dim;
      values[t][c] = exists ? xbc[(first_row + t) * xbc_cols + place] : 0.0f;
      if (args.has_gate != 0) {
        const float by = exists ? gate[(first_row + t) * inner + place] : 0.0f;
        gates[t][c] = by * sigmoid(by);
      }
    }
    if (thread_index < n) {
      // Comparisons, since min and max would drop a NaN.
      float step = softplus(dt[(first_row + thread_index) * n_heads + head] + dt_bias[head]);
      step = step < args.dt_min ? args.dt_min : step > args.dt_max ? args.dt_max : step;
      steps[thread_index] = step;
      decays[thread_index] = precise::exp(rate[head] * step);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (uint t = 0; t < n; ++t) {
      const float decay = decays[t], x = values[t][own], input = steps[t] * x;
      float sum = 0;
      UNROLL
      for (uint i = 0; i < fours; ++i) {
        S[i] = S[i] * decay + b_fours[t][i * kScanLanes + lane] * input;
        sum += dot(c_fours[t][i * kScanLanes + lane], S[i]);
      }
      sum = column_sum(sum) + skip[head] * x;
      if (args.has_gate != 0) sum *= gates[t][own];
      if (lane == 0 && has_column) {
        out[(first_row + t) * inner + head * head_dim + column] = sum;
      }
    }
  }
  if (!has_column) return;
  UNROLL
  for (uint i = 0; i < fours; ++i) {
    store_rows(kept, (i * kScanLanes + lane) * 4, d_state, S[i]);
  }
}

INSTANCE(selective_scan<2>)
INSTANCE(selective_scan<4>)
INSTANCE(selective_scan<8>)

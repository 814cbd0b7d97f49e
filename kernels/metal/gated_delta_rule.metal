// Linear attention by the gated delta rule (S. Yang, J. Kautz and A. Hatamizadeh, "Gated Delta
// Networks", 2024). For each token of a run in order, with S [k_dim, v_dim] of a value head:
//
//   q = scale q / sqrt(sum(q^2) + eps), k = k / sqrt(sum(k^2) + eps)
//   beta = sigmoid(b), decay = exp(rate log(1 + exp(a + dt_bias)))
//   S = decay S;  S = S + k (beta (v - k S));  out = q S
//
// Buffers and geometry: state_arguments.h.
//
// The columns of S are independent. Eight lanes hold a column in registers during the whole run,
// four neighbouring rows at a time, so that q and k are read from threadgroup memory in loads of 16
// bytes, shared by the four columns of a SIMD group. The inputs of 8 tokens at a time are in
// threadgroup memory, normalized by whole SIMD groups. The sums of a column are added in the same
// order for every token of every run.

#include "recurrence.h"

CONSTANT uint kThreads = kDeltaColumns * kDeltaLanes, kTokens = 8;

// to[size] = from[n] * factor / sqrt(sum(from^2) + eps), then zeros. Called by a SIMD group.
inline void normalize_row(threadgroup float* to, uint size, device const float* from, uint n,
                          float factor, float eps, uint lane) {
  float squares = 0;
  for (uint i = lane; i < n; i += kLanes) squares += from[i] * from[i];
  const float scale = factor / precise::sqrt(lanes_sum(squares) + eps);
  for (uint i = lane; i < size; i += kLanes) to[i] = i < n ? from[i] * scale : 0.0f;
}

template <uint fours>
[[kernel, max_total_threads_per_threadgroup(128)]] void gated_delta_rule(
    device float* out [[buffer(0)]], device const float* qkv [[buffer(1)]],
    device const float* ba [[buffer(2)]], device const float* rate [[buffer(3)]],
    device const float* dt_bias [[buffer(4)]], device float* state [[buffer(5)]],
    device const SlotRun* runs [[buffer(6)]], constant GatedDeltaRuleArgs& args [[buffer(7)]],
    uint3 at [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint simd_lane [[thread_index_in_simdgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]]) {
  threadgroup float4 query_fours[kTokens][fours * kDeltaLanes];
  threadgroup float4 key_fours[kTokens][fours * kDeltaLanes];
  threadgroup float values[kTokens][kDeltaColumns];
  threadgroup float betas[kTokens];
  threadgroup float decays[kTokens];
  const SlotRun run = runs[at.z];
  if (run.n_rows == 0) return;
  const uint n_k_heads = args.n_k_heads, n_v_heads = args.n_v_heads;
  const uint k_dim = args.k_dim, v_dim = args.v_dim, rows = fours * 4 * kDeltaLanes;
  const uint head = at.y;
  const uint key_head = args.is_tiled != 0 ? head % n_k_heads : head / (n_v_heads / n_k_heads);
  const uint k_cols = n_k_heads * k_dim, v_cols = n_v_heads * v_dim;
  const uint qkv_cols = 2 * k_cols + v_cols;
  const uint first_column = at.x * kDeltaColumns;
  const uint own = thread_index / kDeltaLanes, lane = thread_index % kDeltaLanes;
  const uint column = first_column + own;
  const bool has_column = column < v_dim;
  device float* kept =
      state + run.slot * args.slot_stride + (ulong(column) * n_v_heads + head) * k_dim;

  float4 S[fours];
  UNROLL
  for (uint i = 0; i < fours; ++i) {
    const bool is_kept = has_column && run.from_zero == 0;
    S[i] = is_kept ? load_rows(kept, (i * kDeltaLanes + lane) * 4, k_dim) : float4(0.0f);
  }
  for (uint first = 0; first < run.n_rows; first += kTokens) {
    const uint n = min(kTokens, run.n_rows - first);
    const ulong first_row = ulong(run.first_row) + first;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = simdgroup; i < 2 * n; i += kThreads / kLanes) {
      const uint t = i / 2;
      device const float* q = qkv + (first_row + t) * qkv_cols + key_head * k_dim;
      if (i % 2 == 0) {
        normalize_row((threadgroup float*)query_fours[t], rows, q, k_dim, args.scale, args.eps,
                      simd_lane);
      } else {
        normalize_row((threadgroup float*)key_fours[t], rows, q + k_cols, k_dim, 1.0f, args.eps,
                      simd_lane);
      }
    }
    for (uint i = thread_index; i < n * kDeltaColumns; i += kThreads) {
      const uint t = i / kDeltaColumns, c = i % kDeltaColumns;
      device const float* v =
          qkv + (first_row + t) * qkv_cols + 2 * k_cols + head * v_dim + first_column;
      values[t][c] = first_column + c < v_dim ? v[c] : 0.0f;
    }
    if (thread_index < n) {
      device const float* b = ba + (first_row + thread_index) * 2 * n_v_heads + head;
      betas[thread_index] = sigmoid(b[0]);
      decays[thread_index] =
          precise::exp(rate[head] * softplus(b[n_v_heads] + dt_bias[head]));
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    for (uint t = 0; t < n; ++t) {
      float known = 0;
      UNROLL
      for (uint i = 0; i < fours; ++i) known += dot(key_fours[t][i * kDeltaLanes + lane], S[i]);
      const float decay = decays[t];
      const float change = betas[t] * (values[t][own] - decay * column_sum(known));
      float sum = 0;
      UNROLL
      for (uint i = 0; i < fours; ++i) {
        S[i] = S[i] * decay + key_fours[t][i * kDeltaLanes + lane] * change;
        sum += dot(query_fours[t][i * kDeltaLanes + lane], S[i]);
      }
      sum = column_sum(sum);
      if (lane == 0 && has_column) out[(first_row + t) * v_cols + head * v_dim + column] = sum;
    }
  }
  if (!has_column) return;
  UNROLL
  for (uint i = 0; i < fours; ++i) {
    store_rows(kept, (i * kDeltaLanes + lane) * 4, k_dim, S[i]);
  }
}

INSTANCE(gated_delta_rule<1>)
INSTANCE(gated_delta_rule<2>)
INSTANCE(gated_delta_rule<4>)
INSTANCE(gated_delta_rule<8>)

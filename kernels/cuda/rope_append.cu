// Prepares attention from the product of Q, K and V in one launch: splits each token's row into
// heads, normalizes and rotates q and k, appends k and v to the sequence's page and to those of
// branches, and writes q.
//
//   qkv [tokens, n_heads * k_dim | n_kv_heads * k_dim | n_kv_heads * v_dim] F32
//   q   [tokens, n_heads * k_dim] F32; rope [tokens, 2 * n_freqs] of rope_table
//   grid: (tokens, groups of heads / warps); a group is up to kAppendHeads neighbouring heads of
//   one kind: queries first, then keys, then values. Where values are in the keys, values have no
//   columns and no groups.
//   block: up to kAppendWarps warps; dynamic shared: the heads of each warp, of the larger of k_dim
//   and v_dim floats, rounded up to 4
//   moves: 8 bytes a number of q, 4 a number of k and v and those of the cache's type
//
// A warp computes a group without barriers of the block. A prompt has tens of thousands of heads:
// a block for each took 65 us for 512 tokens of 48 heads on an H200, nearly all of it to start
// blocks and to wait. The numbers of a group are in flight together, and what all heads need is
// computed once for the group.
//
// RMSNorm is over the head if the norm's weight has the width of a head (Qwen 3, Gemma 3), else
// over all heads at once (OLMo 2): then every warp sums the squares of all heads, from the cache.
// RoPE: J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.

#include "appended_rows.cuh"
#include "ptx.cuh"

// Neighbouring heads of one kind: queries, keys or values of a token.
struct HeadGroup {
  const float* kind;  // the first head of the kind
  u32 first, count;
  u32 dim;

  DEVICE_MEMBER const float* begin() const { return kind + first * dim; }
  DEVICE_MEMBER u32 size() const { return count * dim; }
  // Index of the first number of head h; of the last head for one beyond it.
  DEVICE_MEMBER u32 at(u32 h) const { return min(h, count - 1) * dim; }
};

// Starts to copy the numbers of a group to shared memory. in_fours: they begin at multiples of 16
// bytes in both, and are a multiple of 4.
DEVICE void request_numbers(float* to, const HeadGroup& heads, bool in_fours) {
  if (in_fours) {
#pragma unroll 1
    for (u32 i = 4 * lane_id(); i < heads.size(); i += kWarpNumbers) {
      copy_async_16(to + i, heads.begin() + i, true);
    }
  } else {
#pragma unroll 4
    for (u32 i = lane_id(); i < heads.size(); i += kWarp) to[i] = heads.begin()[i];
  }
  commit_copies();
}

// Sums of squares as block_sum adds them in a block of four warps: the sums of each of its warps
// for each head.
struct SquareSums {
  float of_warp[4 * kAppendHeads];  // [warp][head]

  DEVICE_MEMBER SquareSums() : of_warp() {}

  // Adds numbers lane + 32 k of the n of a head; `in_flight` are loaded at once.
  DEVICE_MEMBER void add_head(const float* numbers, u32 n) {
    constexpr u32 kInFlight = 4;
#pragma unroll 1
    for (u32 first = 0; first < n; first += kInFlight * kWarp) {
      const float* own = numbers + first + lane_id();
      float x[kInFlight];
#pragma unroll
      for (u32 k = 0; k < kInFlight; ++k) {
        x[k] = first + k * kWarp + lane_id() < n ? own[k * kWarp] : 0.0f;
      }
#pragma unroll
      for (u32 k = 0; k < kInFlight; ++k) of_warp[k % 4 * kAppendHeads] += x[k] * x[k];
    }
  }
  // Adds those of the heads of a group.
  DEVICE_MEMBER void add_heads(const float* values, const HeadGroup& heads) {
#pragma unroll 1
    for (u32 first = 0; first < heads.dim; first += 4 * kWarp) {
#pragma unroll
      for (u32 k = 0; k < 4; ++k) {
        const u32 i = first + k * kWarp + lane_id();
#pragma unroll
        for (u32 h = 0; h < kAppendHeads; ++h) {
          const float x = i < heads.dim ? values[heads.at(h) + i] : 0.0f;
          of_warp[k * kAppendHeads + h] += x * x;
        }
      }
    }
  }
  // Returns the sum of head lane / 2 % 4. Adds as warp_sum does, but each half of the lanes goes on
  // with half of the sums: warps are bits 4 and 3 of a lane, heads are bits 2 and 1.
  DEVICE_MEMBER float of_head() {
    static_assert(kAppendHeads == 4);
    halve<8>();
    halve<4>();
    halve<2>();
    halve<1>();
    float sum = of_warp[0];
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 16);
    return sum + __shfl_xor_sync(kAllLanes, sum, 8);
  }

 private:
  // Of 2 n sums, adds the lower n of two lanes in the lower one and the upper n in the upper one.
  template <u32 n>
  DEVICE_MEMBER void halve() {
    const bool is_upper = lane_id() & 2 * n;
#pragma unroll
    for (u32 i = 0; i < n; ++i) {
      const float sent = is_upper ? of_warp[i] : of_warp[n + i];
      of_warp[i] = is_upper ? of_warp[n + i] : of_warp[i];
      of_warp[i] += __shfl_xor_sync(kAllLanes, sent, 2 * n);
    }
  }
};

// Normalises the heads of a group in shared memory.
DEVICE void normalise_heads(float* values, const HeadGroup& heads, const float* weight, u32 width,
                            float eps, float offset) {
  const bool per_head = width == heads.dim;
  SquareSums squares;
  if (per_head) {
    squares.add_heads(values, heads);
  } else {
    squares.add_head(heads.kind, width);
    weight += heads.first * heads.dim;
  }
  const float scale = 1.0f / sqrtf(squares.of_head() / float(width) + eps);
  float scales[kAppendHeads];
#pragma unroll
  for (u32 h = 0; h < kAppendHeads; ++h) {
    scales[h] = __shfl_sync(kAllLanes, scale, per_head ? 2 * h : 0);
  }
#pragma unroll 1
  for (u32 i = lane_id(); i < heads.dim; i += kWarp) {
    float numbers[kAppendHeads];
#pragma unroll
    for (u32 h = 0; h < kAppendHeads; ++h) {
      const float w = weight[(per_head ? 0 : heads.at(h)) + i];
      numbers[h] = values[heads.at(h) + i] * scales[h] * (w + offset);
    }
#pragma unroll
    for (u32 h = 0; h < kAppendHeads; ++h) values[heads.at(h) + i] = numbers[h];
  }
  __syncwarp();
}

// The cosines and sines of a token: this lane's first ones, loaded at once, and the others.
struct TokenAngles {
  static constexpr u32 kOwn = 2;
  const float* cosines;
  const float* sines;
  u32 n_freqs;
  Angle own[kOwn];

  DEVICE_MEMBER TokenAngles(const float* angles, u32 n)
      : cosines(angles + lane_id()), sines(cosines + n), n_freqs(n), own() {
#pragma unroll
    for (u32 k = 0; k < kOwn; ++k) {
      if (lane_id() + k * kWarp < n) {
        own[k] = {load_now(cosines + k * kWarp), load_now(sines + k * kWarp)};
      }
    }
  }
  // Angle lane + 32 k.
  DEVICE_MEMBER Angle get(u32 k) const {
    return k == 0 ? own[0] : k == 1 ? own[1] : Angle{cosines[k * kWarp], sines[k * kWarp]};
  }
};

// Rotates the heads of a group in shared memory.
DEVICE void rotate_heads(float* values, const HeadGroup& heads, const TokenAngles& angles,
                         u32 interleaved) {
#pragma unroll 1
  for (u32 k = 0; lane_id() + k * kWarp < angles.n_freqs; ++k) {
    const PairPlace at(lane_id() + k * kWarp, angles.n_freqs, interleaved);
    const Angle angle = angles.get(k);
    float a[kAppendHeads], b[kAppendHeads];
#pragma unroll
    for (u32 h = 0; h < kAppendHeads; ++h) {
      a[h] = values[heads.at(h) + at.first];
      b[h] = values[heads.at(h) + at.second];
    }
#pragma unroll
    for (u32 h = 0; h < kAppendHeads; ++h) {
      rotate(a[h], b[h], angle);
      values[heads.at(h) + at.first] = a[h];
      values[heads.at(h) + at.second] = b[h];
    }
  }
}

// Blocks that a multiprocessor holds: 512 tokens of 48 heads are there at once. Rounding to a scale
// takes more registers.
template <class T>
constexpr u32 kResident = sizeof(T) > 1 ? 12 : 8;

template <class T>
__global__ void __launch_bounds__(kAppendWarps* kWarp, kResident<T>)
    rope_append(ARGUMENT(RopeAppend) a) {
  wait_for_previous_kernel();
  const KvCache kv = {a.kv, a.pages};
  DYNAMIC_SHARED(float, shared);
  const u32 token = blockIdx.x;
  const u32 group = blockIdx.y * (blockDim.x / kWarp) + warp_id();
  const u32 q_groups = (a.n_heads + kAppendHeads - 1) / kAppendHeads;
  const u32 kv_groups = (kv.n_kv_heads + kAppendHeads - 1) / kAppendHeads;
  if (group >= q_groups + (kv.values_in_keys ? 1 : 2) * kv_groups) return;
  const bool is_query = group < q_groups, is_value = group >= q_groups + kv_groups;

  const u32 q_cols = a.n_heads * kv.k_dim, k_cols = kv.n_kv_heads * kv.k_dim;
  const u32 v_cols = kv.values_in_keys ? 0 : kv.n_kv_heads * kv.v_dim;
  const float* row = a.qkv + u64(token) * (q_cols + k_cols + v_cols);
  HeadGroup heads;
  heads.kind = row + (is_query ? 0 : is_value ? q_cols + k_cols : q_cols);
  heads.dim = is_value ? kv.v_dim : kv.k_dim;
  heads.first =
      (group - (is_query ? 0 : is_value ? q_groups + kv_groups : q_groups)) * kAppendHeads;
  heads.count = min((is_query ? a.n_heads : kv.n_kv_heads) - heads.first, kAppendHeads);
  // All heads then begin at multiples of 16 bytes.
  const bool in_fours = (kv.k_dim | kv.v_dim) % 4 == 0;

  // The inputs have room for the tokens of a whole grid, so their numbers are requested together
  // with the number of tokens.
  float* values = shared + warp_id() * kAppendHeads * round_up(max(kv.k_dim, kv.v_dim), 4);
  request_numbers(values, heads, in_fours);
  const u32 n_freqs = is_value ? 0 : a.n_freqs;
  const TokenAngles angles(a.rope + u64(token) * 2 * n_freqs, n_freqs);
  const u32 position = load_now(reinterpret_cast<const u32*>(a.positions) + token);
  const i32 own_sequence = i32(load_now(reinterpret_cast<const u32*>(a.sequences) + token));
  const u32 n_copies = load_now(a.n_copies);
  // The wait for the copies follows the branch, so that all of these are in flight together.
  if (token >= load_now(a.n_tokens)) {
    wait_copies<0>();
    return;
  }
  wait_copies<0>();
  __syncwarp();

  const u32 width = is_value ? 0 : is_query ? a.q_norm_width : a.k_norm_width;
  if (width > 0) {
    normalise_heads(values, heads, is_query ? a.q_norm : a.k_norm, width, a.eps, a.offset);
  }
  rotate_heads(values + a.first_rotated, heads, angles, a.interleaved);
  __syncwarp();
  if (is_query) {
    float* out = a.q + u64(token) * q_cols + heads.first * heads.dim;
    return store_numbers(out, values, heads.size(), in_fours);
  }
  const u32 slot = position % kv.page_tokens;
#pragma unroll 1
  for (u32 i = 0; i <= n_copies; ++i) {
    const i32 sequence = i == 0 ? own_sequence : keeping_sequence(a, token, i);
    if (sequence < 0) continue;
    const u32 page = page_of(a, sequence, position);
#pragma unroll 1
    for (u32 h = 0; h < heads.count; ++h) {
      const u32 head = heads.first + h;
      store_row(is_value ? values_of<T>(kv, page, head) : keys_of<T>(kv, page, head), slot,
                values + h * heads.dim, in_fours);
    }
  }
}

INSTANCE(rope_append<float>)
INSTANCE(rope_append<f16>)
INSTANCE(rope_append<bf16>)
INSTANCE(rope_append<q8>)
INSTANCE(rope_append<q4>)

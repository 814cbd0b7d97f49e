#pragma once

// Access to a row of logits for sample_token.cu: passes over candidates that skip chunks, and the
// search for the token at which a running sum exceeds a number.

#include "radix_select.cuh"
#include "sampling.cuh"

// The row of the block's output.
struct Row {
  const float* logits;         // of the row to choose from
  const float* chunk_maxima;   // of these logits
  u64* chunk_masses;
  u32 vocabulary;
  u32 n_chunks;
  float largest;
  Sampling s;
};

// Calls take(id, logit) for the candidates of chunk c with at least the key `least`. Loads all
// logits before the first use; then passes the few matching ones one by one.
template <class Take>
DEVICE void visit_chunk(const Row& row, u32 c, u32 least, Take take) {
  const u32 first = c * kChunk + lane_id();
  u32 hits = 0;
#pragma unroll
  for (u32 k = 0; k < kChunkRounds; ++k) {
    const u32 id = first + k * kWarp;
    const u32 key = id < row.vocabulary ? key_of(sane(row.logits[id])) : 0;
    hits |= (key > kNoCandidate && key >= least ? 1u : 0u) << k;
  }
  for (; hits != 0; hits &= hits - 1) {
    const u32 id = first + (u32(__ffs(i32(hits))) - 1) * kWarp;
    take(id, sane(row.logits[id]));
  }
}

// The same for all chunks that hold such a key, a warp per chunk.
template <class Take>
DEVICE void visit_row(const Row& row, u32 least, Take take) {
  for (u32 c = warp_id(); c < row.n_chunks; c += blockDim.x / kWarp) {
    if (key_of(row.chunk_maxima[c]) >= least) visit_chunk(row, c, least, take);
  }
}

DEVICE u64 row_mass(const Row& row, float logit) {
  return mass_of(share_of(logit, row.largest, row.s.temperature));
}

// The first place at which the running sum of weights[n] exceeds `target`, and the sum before it;
// called by a warp. If no sum exceeds the target, the last place with a weight.
struct Place {
  u32 index;
  u64 before;
};
DEVICE Place find_place(const u64* weights, u32 n, u64 target) {
  Place last = {0, 0};
  u64 before = 0;
  for (u32 first = 0; first < n; first += kWarp) {
    const u32 i = first + lane_id();
    const u64 own = i < n ? weights[i] : 0;
    const u64 sum = warp_prefix_sum(own);
    const u32 passed = __ballot_sync(kAllLanes, before + sum > target);
    const u32 any = __ballot_sync(kAllLanes, own > 0);
    const u32 lane = passed != 0 ? u32(__ffs(i32(passed))) - 1
                     : any != 0  ? 31 - __clz(i32(any))
                                 : 0;
    const u64 sum_before = __shfl_sync(kAllLanes, before + sum - own, lane);
    if (passed != 0 || any != 0) last = {first + lane, sum_before};
    if (passed != 0) return last;
    before += __shfl_sync(kAllLanes, sum, 31);
  }
  return last;
}

// Shared memory of the block.
struct Scratch {
  SelectShared select;
  u64 chunk[kChunk];     // weights of the tokens of one chunk
  u64 sum_partial[kWarp];
  float max_partial[kWarp];
  double double_partial[kWarp];
  u32 id;
};

// Stores the sums of weight(id, logit) over each chunk in chunk_masses; returns their total.
// `least` is a lower bound for the keys of tokens with a weight.
template <class Weight>
DEVICE u64 weigh_chunks(const Row& row, Scratch& shared, u32 least, Weight weight) {
  u64 total = 0;
  for (u32 c = warp_id(); c < row.n_chunks; c += blockDim.x / kWarp) {
    u64 sum = 0;
    if (key_of(row.chunk_maxima[c]) >= least) {
      visit_chunk(row, c, least, [&](u32 id, float logit) { sum += weight(id, logit); });
    }
    sum = warp_sum(sum);
    if (lane_id() == 0) {
      row.chunk_masses[c] = sum;
      total += sum;
    }
  }
  __syncthreads();
  total = block_sum(total, shared.sum_partial);
  __syncthreads();
  return total;
}

// The token at which the running sum of weights, by id, exceeds `target`; chunk_masses holds the
// sums of the chunks.
template <class Weight>
DEVICE u32 find_token(const Row& row, Scratch& shared, u32 least, u64 target, Weight weight) {
  if (warp_id() == 0) {
    const Place chunk = find_place(row.chunk_masses, row.n_chunks, target);
    for (u32 i = lane_id(); i < kChunk; i += kWarp) shared.chunk[i] = 0;
    __syncwarp();
    visit_chunk(row, chunk.index, least, [&](u32 id, float logit) {
      shared.chunk[id % kChunk] = weight(id, logit);
    });
    __syncwarp();
    const Place token = find_place(shared.chunk, kChunk, target - chunk.before);
    if (lane_id() == 0) shared.id = chunk.index * kChunk + token.index;
  }
  __syncthreads();
  const u32 id = shared.id;
  __syncthreads();
  return id;
}

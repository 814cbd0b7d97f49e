#pragma once

// Shared by the kernels that choose tokens. A row of logits is divided among blocks, and its part
// of a block into chunks of 256 logits, one for each warp. Three launches choose a token:
//
//   summarize_logits  the adjusted logits, and the best token of each chunk; the last block of a
//                     row finds that of the row and finishes rows whose token is not drawn
//   share_histogram   the weights of tokens by their probability, for top_k and top_p
//   draw_token        the mass of each chunk, and a list of the tokens among which top_k or top_p
//                     ends; the last block of a row finds that end and draws
//
// The last blocks read summaries of chunks, the list and one chunk, whatever the distribution.
//
// Probabilities are relative to the most probable token and stored as integers in units of 2^-40,
// so that sums do not depend on the order of addition and a draw is repeatable.

#include "warp.cuh"

constexpr u32 kChunkRounds = kChunk / kWarp;
constexpr u32 kBlockLogits = kBlockChunks * kChunk;
static_assert(kBlockChunks * kWarp == kChunk, "blocks have a thread for each logit of a chunk");

// forge_result; ids[max_top] and logprobs[max_top] follow.
struct Result {
  i32 token;
  u32 flags;
  float logprob;
  u32 n_top;
};
constexpr u32 kLogitsNan = 1;
constexpr u32 kNothingAllowed = 2;

DEVICE Result* result_of(u8* results, u32 output, u32 max_top) {
  return reinterpret_cast<Result*>(results + u64(output) * (sizeof(Result) + 8 * max_top));
}

DEVICE bool penalizes(const Sampling& s) {
  return s.history_begin < s.history_end &&
         (s.repeat_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0);
}
// True if penalties, bias or a mask change the logits.
DEVICE bool adjusts(const Sampling& s) {
  return penalizes(s) || s.bias_begin < s.bias_end || s.mask >= 0;
}
DEVICE bool draws(const Sampling& s) { return s.temperature > 0 && s.forced_token < 0; }
DEVICE bool has_top_k(const Sampling& s, u32 vocabulary) {
  return s.top_k > 0 && s.top_k < vocabulary;
}
DEVICE bool has_top_p(const Sampling& s) { return s.top_p < 1; }

DEVICE u32 chunks_in(u32 vocabulary) { return (vocabulary + kChunk - 1) / kChunk; }
// The chunk of this warp.
DEVICE u32 own_chunk() { return blockIdx.x * kBlockChunks + warp_id(); }

// A logit as sampling reads it: -infinity for NaN, and +0 for -0.
DEVICE float sane(float logit) { return logit > -FORGE_INFINITY ? logit + 0.0f : -FORGE_INFINITY; }

// The rank of a token, an integer: greater for a greater logit, and, of equal ones, for the lower
// id.
DEVICE u64 rank_of(float logit, u32 id) {
  const u32 bits = __float_as_uint(logit);
  const u32 key = bits ^ ((bits & 0x80000000u) != 0 ? 0xffffffffu : 0x80000000u);
  return u64(key) << 32 | ~id;
}
DEVICE u32 id_of(u64 rank) { return ~u32(rank); }
DEVICE float logit_of(u64 rank) {
  const u32 key = u32(rank >> 32);
  return __uint_as_float(key ^ ((key & 0x80000000u) != 0 ? 0x80000000u : 0xffffffffu));
}
// In place of the best rank of a chunk that holds a NaN or +infinity.
constexpr u64 kBadRank = ~u64(0);

// Calls take(id, logit) for this thread's logits of a chunk that can be chosen. Loads all of them
// before the first use.
template <class Take>
DEVICE void visit_chunk(const float* logits, u32 vocabulary, u32 chunk, Take take) {
  const u32 first = chunk * kChunk + lane_id();
  float own[kChunkRounds];
#pragma unroll
  for (u32 k = 0; k < kChunkRounds; ++k) {
    const u32 id = first + k * kWarp;
    own[k] = id < vocabulary ? sane(logits[id]) : -FORGE_INFINITY;
  }
#pragma unroll
  for (u32 k = 0; k < kChunkRounds; ++k) {
    if (own[k] > -FORGE_INFINITY) take(first + k * kWarp, own[k]);
  }
}

// Log of the sum of exp(logit) over a row, of which maxima and sums [n_chunks] have the largest
// logit of each chunk and the sum of exp(logit - largest). Calls visit(chunk) for each chunk, by
// one thread. All threads of the block receive the result.
template <class Visit>
DEVICE double log_sum_exp(const float* maxima, const float* sums, u32 n_chunks,
                          float* max_partial, double* sum_partial, Visit visit) {
  constexpr u32 kBatch = 4;  // loads in flight
  float largest = -FORGE_INFINITY, sum = 0;
  for (u32 first = threadIdx.x; first < n_chunks; first += kBatch * blockDim.x) {
    float own[kBatch], own_sums[kBatch], before = largest;
#pragma unroll
    for (u32 k = 0; k < kBatch; ++k) {
      const u32 c = first + k * blockDim.x;
      own[k] = c < n_chunks ? maxima[c] : -FORGE_INFINITY;
      own_sums[k] = c < n_chunks ? sums[c] : 0.0f;
      if (c < n_chunks) visit(c);
    }
#pragma unroll
    for (u32 k = 0; k < kBatch; ++k) largest = fmaxf(largest, own[k]);
    if (!(largest > -FORGE_INFINITY)) continue;
    sum *= expf(before - largest);
#pragma unroll
    for (u32 k = 0; k < kBatch; ++k) sum += own_sums[k] * expf(own[k] - largest);
  }
  const float all = block_max(largest, max_partial);
  const double share = largest > -FORGE_INFINITY ? double(sum * expf(largest - all)) : 0.0;
  return all + log(block_sum(share, sum_partial));
}

// A row from which a token is drawn.
struct Row {
  const float* logits;
  float largest;
  float inverse;  // of the temperature

  DEVICE_MEMBER Row(const Sampling& s, const DrawnRow& drawn, const float* logits,
                    const float* adjusted, u32 output, u32 vocabulary)
      : logits((adjusts(s) ? adjusted : logits) + u64(output) * vocabulary),
        largest(drawn.largest),
        inverse(fminf(1.0f / s.temperature, 3.402823466e38f)) {}

  // -log of a token's share: of its probability, relative to that of the most probable token.
  DEVICE_MEMBER float depth(float logit) const {
    return logit < largest ? (largest - logit) * inverse : 0.0f;
  }
};
DEVICE float share_at(float depth) { return expf(-depth); }
DEVICE u64 mass_of(float share) { return u64(share * 1099511627776.0f); }

// Buckets of a histogram are 1/64 wide in depth. The last one holds everything from 16 on, where
// 128k tokens together weigh less than 1.5% of the most probable one.
DEVICE u32 bucket_at(float depth) { return u32(fminf(depth * 64.0f, float(kBuckets - 1))); }

// 32 random bits of Philox4x32-10: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel
// random numbers: as easy as 1, 2, 3", SC'11. The counter is (position, stream), the key the seed:
// the bits of csrc/common/philox.h.
DEVICE u32 philox(const Sampling& s) {
  u32 c0 = s.position, c1 = s.stream, c2 = 0, c3 = 0, k0 = s.seed_low, k1 = s.seed_high;
  for (u32 round = 0; round < 10; ++round) {
    const u64 a = u64(0xD2511F53u) * c0, b = u64(0xCD9E8D57u) * c2;
    c0 = u32(b >> 32) ^ c1 ^ k0;
    c1 = u32(b);
    c2 = u32(a >> 32) ^ c3 ^ k1;
    c3 = u32(a);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c0;
}

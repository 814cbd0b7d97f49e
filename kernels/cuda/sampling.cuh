#pragma once

// Shared by the kernels that choose tokens. A row of logits is divided into chunks of 256, and a
// first pass stores the largest logit of each. Later passes skip chunks that cannot matter, and so
// read only a few of the 500 chunks of a vocabulary of 128k.
//
// Probabilities are relative to the most probable token and stored as integers in units of 2^-40,
// so that sums do not depend on the order of addition and a draw is repeatable.

#include "sampling_arguments.h"
#include "warp.cuh"

constexpr u32 kChunkRounds = kChunk / kWarp;

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
// The row to choose from.
DEVICE const float* chosen_row(const Sampling& s, const float* logits, const float* adjusted,
                               u32 output, u32 vocabulary) {
  return (adjusts(s) ? adjusted : logits) + u64(output) * vocabulary;
}

DEVICE u32 chunks_in(u32 vocabulary) { return (vocabulary + kChunk - 1) / kChunk; }

// A logit as sampling reads it: -infinity for NaN, and +0 for -0.
DEVICE float sane(float logit) { return logit > -FORGE_INFINITY ? logit + 0.0f : -FORGE_INFINITY; }

// exp((logit - largest) / temperature), at most 1.
DEVICE float share_of(float logit, float largest, float temperature) {
  const float inverse = fminf(1.0f / temperature, 3.402823466e38f);
  return expf((logit - largest) * inverse);
}
DEVICE u64 mass_of(float share) { return u64(share * 1099511627776.0f); }

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

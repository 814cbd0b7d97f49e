#pragma once

// Shared by the kernels that choose tokens. A row of logits is divided into chunks of 256, and a
// first pass stores the largest logit of each. Later passes skip chunks that cannot matter, and so
// read only a few of the 500 chunks of a vocabulary of 128k.
//
// Probabilities are relative to the most probable token and stored as integers in units of 2^-40,
// so that sums do not depend on the order of addition and a draw is repeatable. Other devices use
// double in places; here integers or pairs of floats (exact_math.h) replace it.

#include "simd.h"

CONSTANT uint kChunkRounds = kChunk / kLanes;

// forge_result; ids[max_top] and logprobs[max_top] follow.
struct Result {
  int token;
  uint flags;
  float logprob;
  uint n_top;
};
CONSTANT uint kLogitsNan = 1;
CONSTANT uint kNothingAllowed = 2;

inline device Result* result_of(device u8* results, uint output, uint max_top) {
  return (device Result*)(results + ulong(output) * (sizeof(Result) + 8 * max_top));
}

inline bool penalizes(Sampling s) {
  return s.history_begin < s.history_end &&
         (s.repeat_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0);
}
// True if penalties, bias or a mask change the logits.
inline bool adjusts(Sampling s) {
  return penalizes(s) || s.bias_begin < s.bias_end || s.mask >= 0;
}
// The row to choose from.
inline device const float* chosen_row(Sampling s, device const float* logits,
                                      device const float* adjusted, uint output, uint vocabulary) {
  return (adjusts(s) ? adjusted : logits) + ulong(output) * vocabulary;
}

// True if tokens are drawn, false if the most probable one is chosen. Reads the temperature's bits,
// since GPUs may take a subnormal number for 0.
inline bool draws(Sampling s) { return as_type<uint>(s.temperature) << 1 != 0; }

inline uint chunks_in(uint vocabulary) { return (vocabulary + kChunk - 1) / kChunk; }

// A logit as sampling reads it: -infinity for NaN, and +0 for -0.
inline float sane(float logit) { return logit > -INFINITY ? logit + 0.0f : -INFINITY; }

// exp((logit - largest) / temperature), at most 1.
inline float share_of(float logit, float largest, float temperature) {
  const float inverse = fmin(1.0f / temperature, 3.402823466e38f);
  return precise::exp((logit - largest) * inverse);
}
inline ulong mass_of(float share) { return ulong(share * 1099511627776.0f); }

// 32 random bits of Philox4x32-10: J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel
// random numbers: as easy as 1, 2, 3", SC'11. The counter is (position, stream), the key the seed:
// the bits of csrc/common/philox.h.
inline uint philox(Sampling s) {
  uint c0 = s.position, c1 = s.stream, c2 = 0, c3 = 0, k0 = s.seed_low, k1 = s.seed_high;
  for (uint round = 0; round < 10; ++round) {
    const uint a = mulhi(0xD2511F53u, c0), a_low = 0xD2511F53u * c0;
    const uint b = mulhi(0xCD9E8D57u, c2), b_low = 0xCD9E8D57u * c2;
    c0 = b ^ c1 ^ k0;
    c1 = b_low;
    c2 = a ^ c3 ^ k1;
    c3 = a_low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c0;
}

#pragma once

// Access to a row of logits for sample_token.metal: passes over candidates that skip chunks, and
// the search for the token at which a running sum exceeds a number.

#include "radix_select.h"
#include "sampling.h"

// The row of the threadgroup's output.
struct Row {
  device const float* logits;         // of the row to choose from
  device const float* chunk_maxima;   // of these logits
  device ulong* chunk_masses;
  uint vocabulary;
  uint n_chunks;
  float largest;
  Sampling s;
};

inline ulong row_mass(thread const Row& row, float logit) {
  return mass_of(share_of(logit, row.largest, row.s.temperature));
}

// Calls visitor.take(id, logit) for the candidates of chunk c with at least the key `least`. Loads
// all logits before the first use; then passes the few matching ones one by one.
template <class Visitor>
inline void visit_chunk(thread const Row& row, uint c, uint least, thread Visitor& visitor,
                        uint lane) {
  const uint first = c * kChunk + lane;
  uint hits = 0;
  for (uint k = 0; k < kChunkRounds; ++k) {
    const uint id = first + k * kLanes;
    const uint key = id < row.vocabulary ? key_of(sane(row.logits[id])) : 0;
    hits |= (key > kNoCandidate && key >= least ? 1u : 0u) << k;
  }
  for (; hits != 0; hits &= hits - 1) {
    const uint id = first + ctz(hits) * kLanes;
    visitor.take(id, sane(row.logits[id]));
  }
}

// The same for all chunks that hold such a key, a SIMD group per chunk.
template <class Visitor>
inline void visit_row(thread const Row& row, uint least, thread Visitor& visitor, Place p) {
  for (uint c = p.simdgroup; c < row.n_chunks; c += p.n_simdgroups) {
    if (key_of(row.chunk_maxima[c]) >= least) visit_chunk(row, c, least, visitor, p.lane);
  }
}

// Threadgroup memory of a choice.
struct ChoiceMemory {
  SelectMemory select;
  ulong chunk[kChunk];  // weights of the tokens of one chunk
  ulong sum_partial[kLanes];
  float max_partial[kLanes];
  float float_partial[kLanes];
  uint id;
};

// The first place at which the running sum of weights[n] exceeds `target`, and the sum before it;
// called by a SIMD group. If no sum exceeds the target, the last place with a weight. Weights is a
// pointer to ulong.
struct FoundPlace {
  uint index;
  ulong before;
};
template <class Weights>
inline FoundPlace find_place(Weights weights, uint n, ulong target, uint lane) {
  FoundPlace last = {0, 0};
  ulong before = 0;
  for (uint first = 0; first < n; first += kLanes) {
    const uint i = first + lane;
    const ulong own = i < n ? weights[i] : 0;
    const ulong sum = lanes_prefix_sum(own, lane);
    const uint passed = lanes_ballot(before + sum > target);
    const uint any = lanes_ballot(own > 0);
    const uint at = passed != 0 ? ctz(passed) : any != 0 ? 31 - clz(any) : 0;
    const ulong sum_before = shuffled(before + sum - own, ushort(at));
    if (passed != 0 || any != 0) last = {first + at, sum_before};
    if (passed != 0) return last;
    before += shuffled(sum, ushort(kLanes - 1));
  }
  return last;
}

template <class Weight>
struct SumWeights {
  Weight weight;
  ulong sum;
  void take(uint id, float logit) thread { sum += weight.of(id, logit); }
};

// Stores the sums of weight.of(id, logit) over each chunk in chunk_masses; returns their total.
// `least` is a lower bound for the keys of tokens with a weight.
template <class Weight>
inline ulong weigh_chunks(thread const Row& row, threadgroup ChoiceMemory& memory, uint least,
                          thread const Weight& weight, Place p) {
  ulong total = 0;
  for (uint c = p.simdgroup; c < row.n_chunks; c += p.n_simdgroups) {
    SumWeights<Weight> visitor = {weight, 0};
    if (key_of(row.chunk_maxima[c]) >= least) visit_chunk(row, c, least, visitor, p.lane);
    const ulong sum = lanes_sum(visitor.sum);
    if (p.lane == 0) {
      row.chunk_masses[c] = sum;
      total += sum;
    }
  }
  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  total = group_sum(total, memory.sum_partial, p);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return total;
}

template <class Weight>
struct StoreWeights {
  Weight weight;
  threadgroup ulong* chunk;
  void take(uint id, float logit) thread { chunk[id % kChunk] = weight.of(id, logit); }
};

// The token at which the running sum of weights, by id, exceeds `target`; chunk_masses holds the
// sums of the chunks.
template <class Weight>
inline uint find_token(thread const Row& row, threadgroup ChoiceMemory& memory, uint least,
                       ulong target, thread const Weight& weight, Place p) {
  if (p.simdgroup == 0) {
    const FoundPlace chunk =
        find_place((device const ulong*)row.chunk_masses, row.n_chunks, target, p.lane);
    for (uint i = p.lane; i < kChunk; i += kLanes) memory.chunk[i] = 0;
    simdgroup_barrier(mem_flags::mem_threadgroup);
    StoreWeights<Weight> visitor = {weight, memory.chunk};
    visit_chunk(row, chunk.index, least, visitor, p.lane);
    simdgroup_barrier(mem_flags::mem_threadgroup);
    const FoundPlace token = find_place((threadgroup const ulong*)memory.chunk, kChunk,
                                        target - chunk.before, p.lane);
    if (p.lane == 0) memory.id = chunk.index * kChunk + token.index;
  }
  // The next choice overwrites chunk_masses.
  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  const uint id = memory.id;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return id;
}

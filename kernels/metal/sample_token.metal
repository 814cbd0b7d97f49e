// Chooses a token for each output: the last stage of the argmax, or top_k, top_p, min_p and a draw.
// The chain and its order are those of forge_sampling (csrc/forge.h). Buffers and geometry:
// arguments.h; a threadgroup per output.
//
// A filter is a cut: the tokens above a key, and the first tokens by id among those equal to it.
// Radix selection finds the keys without sorting: for top_k every token weighs 1, for top_p its
// mass. The key has a lower bound: for top_k the k-th largest of the chunks' maxima, for top_p a
// few estimates. Chunks with a lower maximum are not read. The draw walks the kept tokens by id,
// first over chunks, then within one, and so needs no order of probabilities.

#include "exact_math.h"
#include "sampling_row.h"

// Keeps keys above `key`, and keys equal to it up to the token `last_id`.
struct Cut {
  uint key;
  uint last_id;
};
inline Cut no_cut() { return {kNoCandidate, 0}; }
inline bool keeps(Cut cut, uint key, uint id) {
  return key > cut.key || (key == cut.key && id <= cut.last_id);
}

// The inputs of a radix selection: the maxima of chunks, and the tokens of a row, each weighing 1
// or its mass.
struct MaximaNumbers {
  device const float* maxima;
  uint n;
  Place p;
  void visit(Histogram histogram) const thread {
    for (uint c = p.thread_index; c < n; c += threads_of(p)) histogram.take(key_of(maxima[c]), 1);
  }
};

struct TakeOnes {
  Histogram histogram;
  void take(uint, float logit) thread { histogram.take(key_of(logit), 1); }
};
struct RowNumbers {
  Row row;
  uint least;
  Place p;
  void visit(Histogram histogram) const thread {
    TakeOnes visitor = {histogram};
    visit_row(row, least, visitor, p);
  }
};

struct TakeMasses {
  Histogram histogram;
  Row row;
  Cut cut;
  void take(uint id, float logit) thread {
    const uint key = key_of(logit);
    if (keeps(cut, key, id)) histogram.take(key, row_mass(row, logit));
  }
};
struct RowMasses {
  Row row;
  uint least;
  Cut cut;
  Place p;
  void visit(Histogram histogram) const thread {
    TakeMasses visitor = {histogram, row, cut};
    visit_row(row, least, visitor, p);
  }
};

// Weights of tokens: 1 for tokens with a given key, or the mass of kept tokens.
struct KeyWeight {
  uint key;
  ulong of(uint, float logit) const thread { return key_of(logit) == key ? 1 : 0; }
};
struct CutMass {
  Row row;
  Cut cut;
  ulong of(uint id, float logit) const thread {
    return keeps(cut, key_of(logit), id) ? row_mass(row, logit) : 0;
  }
};
struct DrawWeight {
  Row row;
  Cut cut;
  ulong of(uint id, float logit) const thread {
    const float share = share_of(logit, row.largest, row.s.temperature);
    return keeps(cut, key_of(logit), id) && share >= row.s.min_p ? mass_of(share) : 0;
  }
};

// The cut after the first `count` tokens, by id, with this key.
inline Cut cut_after(thread const Row& row, threadgroup ChoiceMemory& memory, uint key, ulong count,
                     ulong there_are, Place p) {
  if (count >= there_are) return {key, 0xffffffffu};
  const KeyWeight weight = {key};
  weigh_chunks(row, memory, key, weight, p);
  return {key, find_token(row, memory, key, count - 1, weight, p)};
}

// Exactly top_k tokens, ties to the lowest id.
inline Cut top_k_cut(thread const Row& row, threadgroup ChoiceMemory& memory, Place p) {
  const uint k = row.s.top_k;
  if (k == 0 || k >= row.vocabulary) return no_cut();
  uint least = 0;
  if (k <= row.n_chunks) {
    // k chunks have at least this maximum, so at least k tokens reach it.
    const MaximaNumbers maxima = {row.chunk_maxima, row.n_chunks, p};
    least = radix_select(memory.select, k, maxima, p).key;
  }
  const RowNumbers numbers = {row, least, p};
  const Selected found = radix_select(memory.select, k, numbers, p);
  if (found.above + found.equal < k) return no_cut();  // fewer candidates than k
  return cut_after(row, memory, found.key, k - found.above, found.equal, p);
}

// The mass of the kept tokens with at least the key `least`.
inline ulong mass_from(thread const Row& row, threadgroup ChoiceMemory& memory, Cut cut, uint least,
                       Place p) {
  SumWeights<CutMass> visitor = {{row, cut}, 0};
  visit_row(row, least, visitor, p);
  const ulong sum = group_sum(visitor.sum, memory.sum_partial, p);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return sum;
}

// The fewest most probable tokens that reach top_p of the mass left by `cut`.
inline Cut top_p_cut(thread const Row& row, threadgroup ChoiceMemory& memory, Cut cut, Place p) {
  if (!(row.s.top_p < 1)) return cut;
  ulong total = 0;
  if (cut.key != kNoCandidate) {
    total = mass_from(row, memory, cut, cut.key, p);
  } else {
    for (uint c = p.thread_index; c < row.n_chunks; c += threads_of(p)) {
      total += row.chunk_masses[c];
    }
    total = group_sum(total, memory.sum_partial, p);
    // The next cut overwrites chunk_masses.
    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  }
  const ulong goal = goal_of(row.s.top_p, total);
  uint least = cut.key;
  // Usually a few hundred tokens reach top_p: ln of 1e-2, 1e-4 and 1e-6.
  for (float log_share = -4.6f; cut.key == kNoCandidate && log_share > -14; log_share -= 4.6f) {
    const uint guess = key_of(row.largest + log_share * row.s.temperature);
    if (mass_from(row, memory, cut, guess, p) >= goal) {
      least = guess;
      break;
    }
  }
  const RowMasses masses = {row, least, cut, p};
  const Selected found = radix_select(memory.select, goal, masses, p);
  // Equal keys have equal masses: this many of them reach the goal.
  const ulong mass = row_mass(row, float_of(found.key)), each = mass > 0 ? mass : 1;
  const ulong count = (goal - found.above + each - 1) / each, there_are = found.equal / each;
  if (found.key == cut.key && count >= there_are) return cut;
  return cut_after(row, memory, found.key, count, there_are, p);
}

inline uint draw(thread const Row& row, threadgroup ChoiceMemory& memory, Place p) {
  const Cut cut = top_p_cut(row, memory, top_k_cut(row, memory, p), p);
  const DrawWeight weight = {row, cut};
  const ulong total = weigh_chunks(row, memory, cut.key, weight, p);
  const ulong target = drawn_target(total, philox(row.s));
  return find_token(row, memory, cut.key, target, weight, p);
}

struct LowestId {
  uint id;
  void take(uint candidate, float) thread { id = min(id, candidate); }
};

// The lowest id of the largest logit.
inline uint argmax(thread const Row& row, threadgroup ChoiceMemory& memory, Place p) {
  if (p.thread_index == 0) memory.id = 0xffffffffu;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  LowestId visitor = {0xffffffffu};
  visit_row(row, key_of(row.largest), visitor, p);
  if (visitor.id != 0xffffffffu) {
    atomic_fetch_min_explicit((threadgroup atomic_uint*)&memory.id, visitor.id,
                              memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return memory.id;
}

[[kernel, max_total_threads_per_threadgroup(512)]] void sample_token(
    device u8* results [[buffer(0)]], device const float* logits [[buffer(1)]],
    device const float* adjusted [[buffer(2)]], device const float* maxima [[buffer(3)]],
    device const float* adjusted_maxima [[buffer(4)]], device const float* sums [[buffer(5)]],
    device ulong* masses [[buffer(6)]], device const Sampling* sampling [[buffer(7)]],
    device const uint* n_outputs [[buffer(8)]], constant SamplingArgs& args [[buffer(9)]],
    uint output [[threadgroup_position_in_grid]], uint thread_index [[thread_index_in_threadgroup]],
    uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint n_simdgroups [[simdgroups_per_threadgroup]]) {
  threadgroup ChoiceMemory memory;
  if (output >= *n_outputs) return;
  const Place p = {thread_index, lane, simdgroup, n_simdgroups};
  Row row;
  row.s = sampling[output];
  row.vocabulary = args.vocabulary;
  row.n_chunks = chunks_in(args.vocabulary);
  row.logits = chosen_row(row.s, logits, adjusted, output, args.vocabulary);
  const ulong first = ulong(output) * row.n_chunks;
  row.chunk_maxima = adjusted_maxima + first;
  row.chunk_masses = masses + first;

  float largest = -INFINITY, adjusted_largest = -INFINITY, sum = 0;
  uint bad = 0;
  for (uint c = thread_index; c < row.n_chunks; c += threads_of(p)) {
    largest = fmax(largest, maxima[first + c]);
    adjusted_largest = fmax(adjusted_largest, row.chunk_maxima[c]);
    sum += sums[first + c];
    bad += maxima[first + c] == maxima[first + c] ? 0 : 1;
  }
  largest = group_max(largest, memory.max_partial, p);
  bad = uint(group_sum(ulong(bad), memory.sum_partial, p));
  sum = group_sum(sum, memory.float_partial, p);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  row.largest = group_max(adjusted_largest, memory.max_partial, p);
  threadgroup_barrier(mem_flags::mem_threadgroup);

  device Result* to = result_of(results, output, args.max_top);
  Result result = {-1, kLogitsNan, 0.0f, 0};
  if (bad == 0) {
    int token = row.s.forced_token;
    if (token < 0 && row.largest > -INFINITY) {
      token = int(draws(row.s) ? draw(row, memory, p) : argmax(row, memory, p));
    }
    result.token = token;
    result.flags = token < 0 ? kNothingAllowed : 0;
    result.n_top = row.s.n_top;
    if (token >= 0) {
      const float logit = logits[ulong(output) * args.vocabulary + uint(token)];
      result.logprob = (logit - largest) - precise::log(sum);
    }
  }
  if (thread_index == 0) *to = result;
}

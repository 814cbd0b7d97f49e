// Chooses a token for each output: the last stage of the argmax, or top_k, top_p, min_p and a draw.
// The chain and its order are those of forge_sampling (csrc/forge.h).
//
//   logits, adjusted [outputs, vocabulary]; maxima, adjusted_maxima, sums, masses [outputs, chunks]
//   of chunk_maxima and fused_temperature_softmax; masses is overwritten
//   results: forge_result of each output, followed by ids[max_top] and logprobs[max_top]
//   grid: a block per output; block 1024 (whole warps, at least 256 threads)
//
// A filter is a cut: the tokens above a key, and the first tokens by id among those equal to it.
// Radix selection finds the keys without sorting: for top_k every token weighs 1, for top_p its
// mass. The key has a lower bound: for top_k the k-th largest of the chunks' maxima, for top_p a
// few estimates. Chunks with a lower maximum are not read. The draw walks the kept tokens by id,
// first over chunks, then within one, and so needs no order of probabilities.

#include "sampling_row.cuh"

// Keeps keys above `key`, and keys equal to it up to the token `last_id`.
struct Cut {
  u32 key;
  u32 last_id;
};
constexpr Cut kNoCut = {kNoCandidate, 0};
DEVICE bool keeps(const Cut& cut, u32 key, u32 id) {
  return key > cut.key || (key == cut.key && id <= cut.last_id);
}

// The cut after the first `count` tokens, by id, with this key.
DEVICE Cut cut_after(const Row& row, Scratch& shared, u32 key, u64 count, u64 there_are) {
  if (count >= there_are) return {key, 0xffffffffu};
  const auto weight = [&](u32, float logit) { return u64(key_of(logit) == key ? 1 : 0); };
  weigh_chunks(row, shared, key, weight);
  return {key, find_token(row, shared, key, count - 1, weight)};
}

// Exactly top_k tokens, ties to the lowest id.
DEVICE Cut top_k_cut(const Row& row, Scratch& shared) {
  const u32 k = row.s.top_k;
  if (k == 0 || k >= row.vocabulary) return kNoCut;
  u32 least = 0;
  if (k <= row.n_chunks) {
    // k chunks have at least this maximum, so at least k tokens reach it.
    least = radix_select(shared.select, k, [&](auto take) {
              for (u32 c = threadIdx.x; c < row.n_chunks; c += blockDim.x) {
                take(key_of(row.chunk_maxima[c]), 1);
              }
            }).key;
  }
  const Selected found = radix_select(shared.select, k, [&](auto take) {
    visit_row(row, least, [&](u32, float logit) { take(key_of(logit), 1); });
  });
  if (found.above + found.equal < k) return kNoCut;  // fewer candidates than k
  return cut_after(row, shared, found.key, k - found.above, found.equal);
}

// The fewest most probable tokens that reach top_p of the mass left by `cut`.
DEVICE Cut top_p_cut(const Row& row, Scratch& shared, const Cut& cut) {
  const Sampling& s = row.s;
  if (!(s.top_p < 1)) return cut;
  const auto mass_from = [&](u32 least) {
    u64 sum = 0;
    visit_row(row, least, [&](u32 id, float logit) {
      if (keeps(cut, key_of(logit), id)) sum += row_mass(row, logit);
    });
    sum = block_sum(sum, shared.sum_partial);
    __syncthreads();
    return sum;
  };
  u64 total = 0;
  if (cut.key != kNoCandidate) {
    total = mass_from(cut.key);
  } else {
    for (u32 c = threadIdx.x; c < row.n_chunks; c += blockDim.x) total += row.chunk_masses[c];
    total = block_sum(total, shared.sum_partial);
    __syncthreads();
  }
  const u64 goal = max(u64(ceil(double(s.top_p) * double(total))), u64(1));
  u32 least = cut.key;
  // Usually a few hundred tokens reach top_p: ln of 1e-2, 1e-4 and 1e-6.
  for (float log_share = -4.6f; cut.key == kNoCandidate && log_share > -14; log_share -= 4.6f) {
    const u32 guess = key_of(row.largest + log_share * s.temperature);
    if (mass_from(guess) >= goal) {
      least = guess;
      break;
    }
  }
  const Selected found = radix_select(shared.select, goal, [&](auto take) {
    visit_row(row, least, [&](u32 id, float logit) {
      if (keeps(cut, key_of(logit), id)) take(key_of(logit), row_mass(row, logit));
    });
  });
  // Equal keys have equal masses: this many of them reach the goal.
  const float logit = __uint_as_float(found.key ^ ((found.key & 0x80000000u) != 0 ? 0x80000000u
                                                                                   : 0xffffffffu));
  const u64 each = max(row_mass(row, logit), u64(1));
  const u64 count = (goal - found.above + each - 1) / each, there_are = found.equal / each;
  if (found.key == cut.key && count >= there_are) return cut;
  return cut_after(row, shared, found.key, count, there_are);
}

DEVICE u32 draw(const Row& row, Scratch& shared) {
  const Sampling& s = row.s;
  const Cut cut = top_p_cut(row, shared, top_k_cut(row, shared));
  const auto weight = [&](u32 id, float logit) {
    const float share = share_of(logit, row.largest, s.temperature);
    return keeps(cut, key_of(logit), id) && share >= s.min_p ? mass_of(share) : u64(0);
  };
  const u64 total = weigh_chunks(row, shared, cut.key, weight);
  const u64 target = u64(double(total) * ((philox(s) + 0.5) * (1.0 / 4294967296.0)));
  return find_token(row, shared, cut.key, target, weight);
}

// The lowest id of the largest logit.
DEVICE u32 argmax(const Row& row, Scratch& shared) {
  const u32 key = key_of(row.largest);
  if (threadIdx.x == 0) shared.id = 0xffffffffu;
  __syncthreads();
  u32 lowest = 0xffffffffu;
  visit_row(row, key, [&](u32 id, float) { lowest = min(lowest, id); });
  if (lowest != 0xffffffffu) atomicMin(&shared.id, lowest);
  __syncthreads();
  return shared.id;
}

LARGE_KERNEL sample_token(SampleToken a) {
  wait_for_previous_kernel();
  SHARED(Scratch, memory, [1]);
  Scratch& shared = memory[0];
  const u32 output = blockIdx.x;
  if (output >= *a.n_outputs) return;
  Row row;
  row.s = a.sampling[output];
  row.vocabulary = a.vocabulary;
  row.n_chunks = chunks_in(a.vocabulary);
  row.logits = chosen_row(row.s, a.logits, a.adjusted, output, a.vocabulary);
  const u64 first = u64(output) * row.n_chunks;
  row.chunk_maxima = a.adjusted_maxima + first;
  row.chunk_masses = a.masses + first;

  float largest = -FORGE_INFINITY, adjusted_largest = -FORGE_INFINITY;
  double sum = 0;
  u64 bad = 0;
  for (u32 c = threadIdx.x; c < row.n_chunks; c += blockDim.x) {
    largest = fmaxf(largest, a.maxima[first + c]);
    adjusted_largest = fmaxf(adjusted_largest, row.chunk_maxima[c]);
    sum += a.sums[first + c];
    bad += a.maxima[first + c] == a.maxima[first + c] ? 0 : 1;
  }
  largest = block_max(largest, shared.max_partial);
  bad = block_sum(bad, shared.sum_partial);
  sum = block_sum(sum, shared.double_partial);
  __syncthreads();
  row.largest = block_max(adjusted_largest, shared.max_partial);
  __syncthreads();

  Result* result = result_of(a.results, output, a.max_top);
  if (bad > 0) {
    if (threadIdx.x == 0) *result = {-1, kLogitsNan, 0.0f, 0};
    return;
  }
  i32 token = row.s.forced_token;
  if (token < 0 && row.largest > -FORGE_INFINITY) {
    token = i32(row.s.temperature > 0 ? draw(row, shared) : argmax(row, shared));
  }
  if (threadIdx.x != 0) return;
  float logprob = 0;
  if (token >= 0) {
    logprob = float(double(a.logits[u64(output) * a.vocabulary + u32(token)]) - largest - log(sum));
  }
  *result = {token, token < 0 ? kNothingAllowed : 0, logprob, row.s.n_top};
}

INSTANCE(sample_token)

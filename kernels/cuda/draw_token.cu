// Draws a token for each output: top_k, top_p, min_p and a draw, in the order of forge_sampling
// (csrc/forge.h).
//
//   logits, adjusted [outputs, vocabulary]; bests [outputs, chunks] of summarize_logits; histograms
//   of share_histogram; masses [outputs, chunks] and lists [outputs, kListed] are scratch
//   results: as in summarize_logits, which has written all but token and logprob
//   grid: (chunks / 8, outputs); block 256: a warp per chunk
//   moves: 4 bytes a logit
//
// Tokens are ordered by rank. top_k and top_p keep a first part of them, which ends in a bucket of
// the histogram. Tokens of the buckets before it are kept: their masses are added up by chunk. The
// tokens of the bucket are listed, and radix selection finds the first rank that is not kept. The
// draw walks the kept tokens by id, first over chunks, then within one, and so needs no order of
// probabilities.

#include "radix_select.cuh"
#include "sampling.cuh"

// Shared memory of the block.
struct Scratch {
  SelectShared select;
  u64 listed[kListed];
  u64 partial[kWarp];
  u32 found;
  u64 before;
};

// Buckets before `first` are kept, of those from `first` to `last` only tokens whose weights reach
// `goal`, and none of those after `last`.
struct End {
  u32 first, last;
  u64 goal;
};

// The lowest number of weights at which the sum of weights up to it exceeds `target`, in
// shared.found, with the sum before it; unchanged if the total does not. Returns the total.
// target_of(total) is the target.
template <class Target>
DEVICE u64 find_sum(Scratch& shared, const u64* weights, u32 n, Target target_of) {
  // A multiple of the loads that are in flight together.
  const u32 each = round_up((n + blockDim.x - 1) / blockDim.x, 4), begin = threadIdx.x * each;
  u64 own = 0;
  for (u32 i = begin; i < min(begin + each, n); ++i) own += weights[i];
  const PrefixSum<u64> sum = block_prefix_sum(own, shared.partial);
  const u64 target = target_of(sum.all);
  u64 before = sum.own - own;
  if (before <= target && target < sum.own) {
    u32 i = begin;
    while (before + weights[i] <= target) before += weights[i++];
    shared.found = i;
    shared.before = before;
  }
  __syncthreads();
  return sum.all;
}

DEVICE u64 top_p_goal(const Sampling& s, u64 total) {
  return max(u64(ceil(double(s.top_p) * double(total))), u64(1));
}

DEVICE End find_end(Scratch& shared, const Sampling& s, u32 vocabulary, const u64* histogram) {
  const bool by_count = has_top_k(s, vocabulary), by_mass = has_top_p(s);
  if (!by_count && !by_mass) return {kBuckets, kBuckets - 1, 0};
  if (threadIdx.x == 0) {
    // For fewer tokens than top_k.
    shared.found = kBuckets;
    shared.before = 0;
  }
  __syncthreads();
  u64 goal = s.top_k;
  find_sum(shared, histogram, kBuckets, [&](u64 total) {
    if (!by_count) goal = top_p_goal(s, total);
    return goal - 1;
  });
  const u32 bucket = shared.found;
  const u64 before = shared.before;
  __syncthreads();
  // The share of top_p depends on all tokens that top_k keeps.
  if (by_count && by_mass) return {0, min(bucket, kBuckets - 1), goal};
  return {bucket, min(bucket, kBuckets - 1), goal - before};
}

struct Draw {
  const DrawToken& a;
  const Sampling s;
  const Row row;
  const End end;
  Scratch& shared;
  const u32 n_chunks;
  const u64 first_chunk;  // of the output

  DEVICE_MEMBER bool is_listed(u32 bucket) const {
    return bucket >= end.first && bucket <= end.last;
  }
  // The mass of a token that top_k and top_p keep.
  DEVICE_MEMBER u64 drawn_mass(float depth) const {
    const float share = share_at(depth);
    return share >= s.min_p ? mass_of(share) : 0;
  }
  DEVICE_MEMBER bool may_hold_kept(u32 chunk) const {
    const float best = logit_of(a.bests[first_chunk + chunk]);
    return best > -FORGE_INFINITY && bucket_at(row.depth(best)) <= end.last;
  }

  // Stores the mass of kept tokens of this warp's chunk, and lists those that may be kept.
  DEVICE_MEMBER void weigh_chunk(u32 output) const {
    const u32 chunk = own_chunk();
    if (chunk >= n_chunks) return;
    u64 mass = 0;
    u32 n_listed = 0;
    if (may_hold_kept(chunk)) {
      visit_chunk(row.logits, a.vocabulary, chunk, [&](u32, float logit) {
        const float depth = row.depth(logit);
        const u32 bucket = bucket_at(depth);
        if (bucket < end.first) mass += drawn_mass(depth);
        if (is_listed(bucket)) ++n_listed;
      });
    }
    mass = warp_sum(mass);
    if (lane_id() == 0) a.masses[first_chunk + chunk] = mass;
    const u32 sum = warp_prefix_sum(n_listed), all = __shfl_sync(kAllLanes, sum, kWarp - 1);
    if (all == 0) return;
    u32 at = lane_id() == 0 ? atomicAdd(&a.rows[output].n_listed, all) : 0;
    at = __shfl_sync(kAllLanes, at, 0) + sum - n_listed;
    visit_chunk(row.logits, a.vocabulary, chunk, [&](u32 id, float logit) {
      if (!is_listed(bucket_at(row.depth(logit)))) return;
      if (at < kListed) a.lists[u64(output) * kListed + at] = rank_of(logit, id);
      ++at;
    });
  }

  // Calls take(rank) for the listed tokens of this thread, from the row if the list is too short.
  template <class Take>
  DEVICE_MEMBER void visit_listed(u32 n_listed, Take take) const {
    if (n_listed <= kListed) {
      for (u32 i = threadIdx.x; i < n_listed; i += blockDim.x) take(shared.listed[i]);
      return;
    }
    for (u32 c = warp_id(); c < n_chunks; c += kBlockChunks) {
      if (!may_hold_kept(c)) continue;
      visit_chunk(row.logits, a.vocabulary, c, [&](u32 id, float logit) {
        if (is_listed(bucket_at(row.depth(logit)))) take(rank_of(logit, id));
      });
    }
  }

  // The least rank of a listed token that is kept.
  DEVICE_MEMBER u64 least_rank(u32 n_listed) const {
    u64 least = 0, goal = end.goal;
    const auto mass = [&](u64 rank) {
      return rank >= least ? mass_of(share_at(row.depth(logit_of(rank)))) : u64(0);
    };
    const bool by_count = has_top_k(s, a.vocabulary);
    if (by_count) {
      least = radix_select(shared.select, goal, [&](auto take) {
        visit_listed(n_listed, [&](u64 rank) { take(rank, 1); });
      });
    }
    if (!has_top_p(s)) return least;
    if (by_count) {
      u64 total = 0;
      visit_listed(n_listed, [&](u64 rank) { total += mass(rank); });
      goal = top_p_goal(s, block_sum(total, shared.partial));
      __syncthreads();
    }
    const u64 kept = radix_select(shared.select, goal, [&](auto take) {
      visit_listed(n_listed, [&](u64 rank) { take(rank, mass(rank)); });
    });
    return max(least, kept);
  }

  // Draws the token; called by the last block of the row.
  DEVICE_MEMBER void finish_row(u32 output, double normalizer) const {
    // The whole list, in flight together with its length.
    const u32 n_listed = load_now(&a.rows[output].n_listed);
#pragma unroll
    for (u32 k = 0; k < kListed / kChunk; ++k) {
      const u32 i = k * kChunk + threadIdx.x;
      shared.listed[i] = a.lists[u64(output) * kListed + i];
    }
    __syncthreads();
    u64* masses = a.masses + first_chunk;
    u64 least = 0;
    if (n_listed > 0) {
      least = least_rank(n_listed);
      visit_listed(n_listed, [&](u64 rank) {
        if (rank < least) return;
        atomicAdd(&masses[id_of(rank) / kChunk], drawn_mass(row.depth(logit_of(rank))));
      });
      __syncthreads();
    }

    const double uniform = (philox(s) + 0.5) * (1.0 / 4294967296.0);
    u64 target = 0;
    find_sum(shared, masses, n_chunks, [&](u64 total) {
      return target = u64(double(total) * uniform);
    });
    const u32 id = shared.found * kChunk + threadIdx.x;
    const u64 before = shared.before;
    u64 own = 0;
    float model_logit = 0;
    if (id < a.vocabulary) {
      model_logit = a.logits[u64(output) * a.vocabulary + id];
      const float logit = sane(row.logits[id]), depth = row.depth(logit);
      const bool is_kept = logit > -FORGE_INFINITY && bucket_at(depth) <= end.last &&
                           (bucket_at(depth) < end.first || rank_of(logit, id) >= least);
      if (is_kept) own = drawn_mass(depth);
    }
    const u64 sum = before + block_prefix_sum(own, shared.partial).own;
    if (sum - own <= target && target < sum) {
      Result* result = result_of(a.results, output, a.max_top);
      result->token = i32(id);
      result->logprob = float(model_logit - normalizer);
    }
  }
};

KERNEL draw_token(DrawToken a) {
  wait_for_previous_kernel();
  SHARED(Scratch, memory, [1]);
  const u32 output = blockIdx.y;
  const DrawnRow drawn = a.rows[output];
  if (drawn.is_drawn == 0) return;
  const Sampling s = a.sampling[output];
  const u32 n_chunks = chunks_in(a.vocabulary);
  const Draw draw = {a,
                     s,
                     Row(s, drawn, a.logits, a.adjusted, output, a.vocabulary),
                     find_end(memory[0], s, a.vocabulary, a.histograms + u64(output) * kBuckets),
                     memory[0],
                     n_chunks,
                     u64(output) * n_chunks};
  draw.weigh_chunk(output);
  if (is_last_arrival(a.arrivals + output, gridDim.x)) draw.finish_row(output, drawn.normalizer);
}

INSTANCE(draw_token)

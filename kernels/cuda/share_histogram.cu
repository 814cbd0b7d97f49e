// The weights of the tokens of each output by their depth (sampling.cuh): for top_k every token
// weighs 1, for top_p alone its mass.
//
//   logits, adjusted [outputs, vocabulary]; histograms [outputs, kBuckets]: 0 before
//   grid: (chunks / 8, outputs); block 256: a warp per chunk
//   moves: 4 bytes a logit

#include "radix_select.cuh"
#include "sampling.cuh"

KERNEL share_histogram(ShareHistogram a) {
  wait_for_previous_kernel();
  SHARED(Histogram<kBuckets>, memory, [1]);
  const u32 output = blockIdx.y;
  const DrawnRow drawn = a.rows[output];
  if (drawn.is_drawn == 0) return;
  const Sampling s = a.sampling[output];
  const bool counts = has_top_k(s, a.vocabulary);
  if (!counts && !has_top_p(s)) return;
  const Row row(s, drawn, a.logits, a.adjusted, output, a.vocabulary);
  Histogram<kBuckets>& histogram = memory[0];
  histogram.clear();
  __syncthreads();
  u64 rest = 0;  // the last bucket, which may hold most of the vocabulary
  if (own_chunk() < chunks_in(a.vocabulary)) {
    visit_chunk(row.logits, a.vocabulary, own_chunk(), [&](u32, float logit) {
      const float depth = row.depth(logit);
      const u32 bucket = bucket_at(depth);
      const u64 weight = counts ? 1 : mass_of(share_at(depth));
      if (bucket == kBuckets - 1) {
        rest += weight;
      } else {
        histogram.add(bucket, weight);
      }
    });
  }
  rest = warp_sum(rest);
  if (lane_id() == 0) histogram.add(kBuckets - 1, rest);
  __syncthreads();
  for (u32 i = threadIdx.x; i < kBuckets; i += blockDim.x) {
    const u64 weight = histogram.at(i);
    if (weight > 0) atomicAdd(&a.histograms[u64(output) * kBuckets + i], weight);
  }
}

INSTANCE(share_histogram)

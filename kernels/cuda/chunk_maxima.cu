// The largest logit of each chunk of 256: the first stage of the argmax. Later passes use it to
// skip chunks.
//
//   logits, adjusted [outputs, vocabulary] F32; maxima, adjusted_maxima [outputs, chunks]
//   grid: (chunks / 8, outputs); block 256: a warp per chunk
//   moves: 4 bytes a logit, 8 where they are adjusted
//
// The maximum of a chunk that holds a NaN or +infinity is NaN. In the adjusted row NaN is ignored.

#include "sampling.cuh"

KERNEL chunk_maxima(ChunkMaxima a) {
  wait_for_previous_kernel();
  const u32 output = blockIdx.y, chunk = blockIdx.x * (blockDim.x / kWarp) + warp_id();
  if (output >= *a.n_outputs || chunk >= chunks_in(a.vocabulary)) return;
  const float* row = a.logits + u64(output) * a.vocabulary;
  const float* chosen = chosen_row(a.sampling[output], a.logits, a.adjusted, output, a.vocabulary);
  float largest = -FORGE_INFINITY, adjusted_largest = -FORGE_INFINITY;
  bool bad = false;
#pragma unroll
  for (u32 k = 0; k < kChunkRounds; ++k) {
    const u32 i = chunk * kChunk + k * kWarp + lane_id();
    if (i >= a.vocabulary) break;
    bad = bad || !(row[i] < FORGE_INFINITY);
    largest = fmaxf(largest, row[i]);
    adjusted_largest = fmaxf(adjusted_largest, sane(chosen[i]));
  }
  largest = warp_max(largest);
  adjusted_largest = warp_max(adjusted_largest);
  const bool any_bad = __ballot_sync(kAllLanes, bad) != 0;
  if (lane_id() != 0) return;
  const u64 at = u64(output) * chunks_in(a.vocabulary) + chunk;
  a.maxima[at] = any_bad ? __uint_as_float(0x7fffffffu) : largest;
  a.adjusted_maxima[at] = adjusted_largest;
}

INSTANCE(chunk_maxima)

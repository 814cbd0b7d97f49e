// For each chunk of 256 logits: the sum of exp(logit - largest), for log-probabilities, and the
// mass (sampling.cuh) of the adjusted logits at the output's temperature, for drawing.
//
//   sums, masses [outputs, chunks]; maxima, adjusted_maxima of chunk_maxima
//   grid: (chunks / 8, outputs); block 256: a warp per chunk
//   moves: 4 bytes a logit, 8 where they are adjusted
//
// Every block first reduces the maxima of the chunks to the maximum of the row. Masses are computed
// only for outputs that draw.

#include "sampling.cuh"

KERNEL fused_temperature_softmax(FusedTemperatureSoftmax a) {
  wait_for_previous_kernel();
  SHARED(float, partial, [kWarp]);
  SHARED(float, adjusted_partial, [kWarp]);
  const u32 output = blockIdx.y, n_chunks = chunks_in(a.vocabulary);
  if (output >= *a.n_outputs) return;
  const Sampling s = a.sampling[output];
  const u64 first = u64(output) * n_chunks;
  float largest = -FORGE_INFINITY, adjusted_largest = -FORGE_INFINITY;
  for (u32 c = threadIdx.x; c < n_chunks; c += blockDim.x) {
    largest = fmaxf(largest, a.maxima[first + c]);
    adjusted_largest = fmaxf(adjusted_largest, a.adjusted_maxima[first + c]);
  }
  largest = block_max(largest, partial);
  adjusted_largest = block_max(adjusted_largest, adjusted_partial);

  const u32 chunk = blockIdx.x * (blockDim.x / kWarp) + warp_id();
  if (chunk >= n_chunks) return;
  const float* row = a.logits + u64(output) * a.vocabulary;
  const float* chosen = chosen_row(s, a.logits, a.adjusted, output, a.vocabulary);
  const bool draws = s.temperature > 0 && s.forced_token < 0;
  float sum = 0;
  u64 mass = 0;
#pragma unroll
  for (u32 k = 0; k < kChunkRounds; ++k) {
    const u32 i = chunk * kChunk + k * kWarp + lane_id();
    if (i >= a.vocabulary) break;
    sum += expf(row[i] - largest);
    if (draws && chosen[i] > -FORGE_INFINITY) {
      mass += mass_of(share_of(chosen[i], adjusted_largest, s.temperature));
    }
  }
  sum = warp_sum(sum);
  mass = warp_sum(mass);
  if (lane_id() != 0) return;
  a.sums[first + chunk] = sum;
  a.masses[first + chunk] = mass;
}

INSTANCE(fused_temperature_softmax)

// Applies penalties, bias and mask to logits (csrc/forge.h, forge_sampling), for the outputs that
// ask for them; unchanged rows are not written. Buffers and geometry: arguments.h.
//
// Atomic additions count each token of the history at the token's id. The thread that then resets
// a count to zero applies the penalty. This takes one step for each history entry and no sorting.

#include "exact_math.h"
#include "sampling.h"

inline bool is_allowed(device const uint* mask, bool has_mask, uint id) {
  return !has_mask || (mask[id / 32] >> (id % 32) & 1) != 0;
}

[[kernel, max_total_threads_per_threadgroup(512)]] void adjust_logits(
    device float* adjusted [[buffer(0)]], device uint* occurrences [[buffer(1)]],
    device const float* logits [[buffer(2)]], device const Sampling* sampling [[buffer(3)]],
    device const int* history [[buffer(4)]], device const int* bias_ids [[buffer(5)]],
    device const float* bias_values [[buffer(6)]], device const uint* masks [[buffer(7)]],
    device const uint* n_outputs [[buffer(8)]], constant SamplingArgs& args [[buffer(9)]],
    uint output [[threadgroup_position_in_grid]],
    uint thread_index [[thread_index_in_threadgroup]]) {
  if (output >= *n_outputs) return;
  const uint threads = 512, vocabulary = args.vocabulary;
  const Sampling s = sampling[output];
  if (!adjusts(s)) return;
  const ulong begin = ulong(output) * vocabulary;
  device const float* from = logits + begin;
  device float* to = adjusted + begin;
  device atomic_uint* counts = (device atomic_uint*)(occurrences + begin);
  const bool has_mask = s.mask >= 0;
  device const uint* mask = masks + (has_mask ? ulong(uint(s.mask)) * args.mask_words : 0);
  const uint history_end = penalizes(s) ? s.history_end : s.history_begin;

  for (uint i = thread_index; i < vocabulary; i += threads) {
    to[i] = is_allowed(mask, has_mask, i) ? from[i] : -INFINITY;
  }
  for (uint i = s.history_begin + thread_index; i < history_end; i += threads) {
    atomic_fetch_add_explicit(counts + history[i], 1u, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_device);
  for (uint i = s.history_begin + thread_index; i < history_end; i += threads) {
    const uint id = uint(history[i]);
    const uint count = atomic_exchange_explicit(counts + id, 0u, memory_order_relaxed);
    if (count > 0 && is_allowed(mask, has_mask, id)) {
      to[id] = penalized(from[id], s.repeat_penalty, s.presence_penalty, float(count),
                         s.frequency_penalty);
    }
  }
  threadgroup_barrier(mem_flags::mem_device);
  for (uint i = s.bias_begin + thread_index; i < s.bias_end; i += threads) {
    const uint id = uint(bias_ids[i]);
    if (is_allowed(mask, has_mask, id)) {
      atomic_fetch_add_explicit((device atomic_float*)(to + id), bias_values[i],
                                memory_order_relaxed);
    }
  }
}

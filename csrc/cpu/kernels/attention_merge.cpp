// Joining the softmaxes of splits, and the end of one.

#include "kernels.h"
#include "vector_math.h"

namespace forge::cpu::FORGE_TARGET {

namespace {

// A power of two of one number, by the same arithmetic as everywhere else.
FORGE_INLINE float exp2_of(float x) {
  float lanes[kLanes];
  store(lanes, exp2_of_negative(set(x)));
  return lanes[0];
}

}  // namespace

void attention_merge(uint32_t n_rows, uint32_t v_head_dim, const AttentionPartial& into,
                     const AttentionPartial& more) {
  const uint32_t dim = padded_dim(v_head_dim);
  for (uint32_t r = 0; r < n_rows; ++r) {
    if (more.largest[r] == -__builtin_inff()) continue;
    const float top = into.largest[r] > more.largest[r] ? into.largest[r] : more.largest[r];
    const float old_scale = exp2_of(into.largest[r] - top);
    const float new_scale = exp2_of(more.largest[r] - top);
    into.largest[r] = top;
    into.total[r] = into.total[r] * old_scale + more.total[r] * new_scale;
    float* out = into.out + static_cast<uint64_t>(r) * dim;
    scale(out, dim, old_scale, out);
    add_scaled(out, more.out + static_cast<uint64_t>(r) * dim, new_scale, dim);
  }
}

void attention_finish(const AttentionPartial& partial, uint32_t row, uint32_t v_head_dim,
                      const float* sink, float* out) {
  const float* values = partial.out + static_cast<uint64_t>(row) * padded_dim(v_head_dim);
  float total = partial.total[row];
  float values_scale = 1;
  if (sink) {
    const float score = *sink * kLog2E;
    const float top = score > partial.largest[row] ? score : partial.largest[row];
    values_scale = exp2_of(partial.largest[row] - top);
    total = total * values_scale + exp2_of(score - top);
  }
  scale(values, v_head_dim, values_scale / total, out);
}

}  // namespace forge::cpu::FORGE_TARGET

// What one value lets through of another.

#include "kernels.h"
#include "row_vectors.h"
#include "vector_math.h"

namespace forge::cpu::FORGE_TARGET {

void sigmoid_gate(const float* x, const float* gate, uint64_t n, const float* residual,
                  float* out) {
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    const Vec base = residual ? load_up_to(residual + i, m) : zero();
    store_up_to(out + i, fma(sigmoid(load_up_to(gate + i, m)), load_up_to(x + i, m), base), m);
  });
}

void gated_rms_norm(const float* x, const float* gate, const float* weight, uint64_t n, float eps,
                    uint32_t activation, float* out) {
  Vec squares = zero();
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    const Vec a = load_up_to(x + i, m);
    squares = fma(a, a, squares);
  });
  const float mean = sum(squares) / static_cast<float>(n);
  const Vec scale = set(1.0f / __builtin_sqrtf(mean + eps));
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    const Vec normed = load_up_to(x + i, m) * scale * load_up_to(weight + i, m);
    store_up_to(out + i, normed * activate(activation, load_up_to(gate + i, m)), m);
  });
}

}  // namespace forge::cpu::FORGE_TARGET

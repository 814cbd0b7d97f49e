// Activations as signed bytes, for products with quantised weights.

#include "kernels.h"
#include "product_kernels.h"

namespace forge::cpu::FORGE_TARGET {

namespace {

constexpr int kVectors = kBlockCols / kLanes;

// Below this, 127 / largest leaves float's range; the block counts as zeros.
constexpr float kLeast = 1e-35f;

// What the largest value of a block may become. Each rounds the others differently; the one with the
// least squared error of all 32 is taken. That lowers the error by a tenth, and costs little.
constexpr int kChoices = 4;
constexpr float kLargest[kChoices] = {127, 126, 125, 124};

struct Block {
  Vec part[kVectors];
};

FORGE_INLINE Block scaled(const Block& x, Vec by) {
  Block out;
  for (int i = 0; i < kVectors; ++i) out.part[i] = x.part[i] * by;
  return out;
}

// The squared distance of x from whole numbers.
FORGE_INLINE float rounding_error(const Block& x) {
  Vec error = zero();
  for (Vec part : x.part) {
    const Vec off = part - round(part);
    error = fma(off, off, error);
  }
  return sum(error);
}

// A block of zeros, or NaN when x holds one.
void set_nothing(const float* x, ActivationBlock& out) {
  float nan_or_zero = 0;
  for (uint32_t i = 0; i < kBlockCols; ++i) nan_or_zero += x[i] * 0;
  memset(&out, 0, sizeof out);
  out.scale = nan_or_zero;
  for (float& scaled_sum : out.scaled_sum) scaled_sum = nan_or_zero;
}

FORGE_INLINE void quantize_block(const float* x, ActivationBlock& out) {
  Block block;
  Vec most = zero();
  for (int i = 0; i < kVectors; ++i) {
    block.part[i] = load(x + kLanes * i);
    most = max(max(block.part[i], zero() - block.part[i]), most);
  }
  const float largest_x = largest(most);
  if (!(largest_x >= kLeast)) return set_nothing(x, out);
  const Vec to_one = set(1 / largest_x);
  // Vectors of equal lanes: a choice among scalars would be a branch that no one can predict.
  Vec chosen = set(kLargest[0]), least = zero();
  FORGE_UNROLL(4)
  for (int i = 0; i < kChoices; ++i) {
    const Vec steps = set(kLargest[i]);
    // In units of x: the error in steps is divided by the number of steps.
    const Vec error = set(rounding_error(scaled(block, steps * to_one)) *
                          (1 / (kLargest[i] * kLargest[i])));
    if (i == 0) {
      least = error;
    } else {
      const Mask better = less(error, least);
      chosen = select(better, steps, chosen);
      least = select(better, error, least);
    }
  }
  // With a NaN in the block all errors are NaN; an infinity times 1 / infinity is one.
  if (!(least.v[0] >= 0)) return set_nothing(x, out);
  block = scaled(block, chosen * to_one);
  Vec sums[2] = {zero(), zero()};
  for (int i = 0; i < kVectors; ++i) {
    typedef int8_t Narrow __attribute__((vector_size(kLanes)));
    const Vec whole = round(block.part[i]);
    const Narrow q = __builtin_convertvector(to_ints(whole), Narrow);
    memcpy(out.q + kLanes * i, &q, sizeof q);
    Vec& half = sums[2 * i / kVectors];
    half = half + whole;
  }
  out.scale = largest_x / chosen.v[0];
  const float low = sum(sums[0]), high = sum(sums[1]);
  const float all[3] = {low + high, low, high};
  for (int i = 0; i < 3; ++i) {
    out.minus_sum[i] = -static_cast<int32_t>(all[i]);
    out.scaled_sum[i] = out.scale * all[i];
  }
}

}  // namespace

void quantize(const float* x, uint64_t n, ActivationBlock* out) {
  for (uint64_t i = 0; i < n; i += kBlockCols) quantize_block(x + i, *out++);
}

}  // namespace forge::cpu::FORGE_TARGET

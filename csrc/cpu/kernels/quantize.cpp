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

// Blocks whose numbers lie side by side in a vector, as far as they are single ones; a multiple of 4 and
// of the lanes.
constexpr uint32_t kGroup = 16;

struct Add {
  FORGE_INLINE Vec of(Vec a, Vec b) { return a + b; }
};
struct Most {
  FORGE_INLINE Vec of(Vec a, Vec b) { return max(a, b); }
};

// What is found out of the blocks of a group before they are written.
struct GroupFacts {
  alignas(64) float largest[kGroup];
  alignas(64) float to_one[kGroup];  // 1 / largest
  alignas(64) float error[kChoices][kGroup];
  alignas(64) float steps[kGroup];  // what the largest value becomes
};

// The larger of |x| in each lane of a block.
FORGE_INLINE Vec magnitudes(const float* x) {
  Vec most = zero();
  for (int i = 0; i < kVectors; ++i) {
    const Vec a = load(x + kLanes * i);
    most = max(max(a, zero() - a), most);
  }
  return most;
}

// The squared distance of a scaled block from whole numbers.
FORGE_INLINE Vec rounding_error(const float* x, Vec by) {
  Vec error = zero();
  for (int i = 0; i < kVectors; ++i) {
    const Vec part = load(x + kLanes * i) * by;
    const Vec off = part - round(part);
    error = fma(off, off, error);
  }
  return error;
}

// Calls vector(b) -> Vec for four blocks and joins the lanes of each.
template <class Op, class VectorOf>
FORGE_INLINE void across_blocks(float* out, VectorOf vector) {
  const Vec four[4] = {vector(0), vector(1), vector(2), vector(3)};
  across<Op>(four, out);
}

// Four blocks from x on, the b-th of the group and those behind it.
FORGE_INLINE void measure_four(const float* x, uint32_t b, GroupFacts& facts) {
  FORGE_UNROLL(4)
  for (int i = 0; i < kChoices; ++i) {
    across_blocks<Add>(facts.error[i] + b, [&](uint32_t j) FORGE_INLINE_LAMBDA {
      return rounding_error(x + j * kBlockCols, set(kLargest[i]) * set(facts.to_one[b + j]));
    });
  }
}

// The number of steps with the least error, for each block.
FORGE_INLINE void choose_steps(GroupFacts& facts) {
  for (uint32_t b = 0; b < kGroup; b += kLanes) {
    Vec steps = set(kLargest[0]), least = zero();
    FORGE_UNROLL(4)
    for (int i = 0; i < kChoices; ++i) {
      // In units of x: the error in steps is divided by the number of steps.
      const Vec error = load(facts.error[i] + b) * set(1 / (kLargest[i] * kLargest[i]));
      if (i == 0) {
        least = error;
      } else {
        const Mask better = less(error, least);
        steps = select(better, set(kLargest[i]), steps);
        least = select(better, error, least);
      }
    }
    store(facts.steps + b, steps);
  }
}

// A block of zeros, or NaN when x holds one.
void set_nothing(const float* x, ActivationBlock& out) {
  float nan_or_zero = 0;
  for (uint32_t i = 0; i < kBlockCols; ++i) nan_or_zero += x[i] * 0;
  memset(&out, 0, sizeof out);
  out.scale = nan_or_zero;
  for (float& scaled_sum : out.scaled_sum) scaled_sum = nan_or_zero;
}

// Writes the bytes of a block; the sums of its first and of its last 16 are those of the lanes of
// sums[0] and sums[1].
FORGE_INLINE void write_bytes(const float* x, Vec by, ActivationBlock& out, Vec (&sums)[2]) {
  sums[0] = sums[1] = zero();
  for (int i = 0; i < kVectors; ++i) {
    typedef int8_t Narrow __attribute__((vector_size(kLanes)));
    const Vec whole = round(load(x + kLanes * i) * by);
    const Narrow q = __builtin_convertvector(to_ints(whole), Narrow);
    memcpy(out.q + kLanes * i, &q, sizeof q);
    Vec& half = sums[2 * i / kVectors];
    half = half + whole;
  }
}

// Two blocks, the b-th of the group and the one behind it.
FORGE_INLINE void write_two(const float* x, uint32_t b, const GroupFacts& facts,
                            ActivationBlock* out) {
  Vec lanes[2][2];
  for (uint32_t j = 0; j < 2; ++j) {
    write_bytes(x + j * kBlockCols, set(facts.steps[b + j] * facts.to_one[b + j]), out[j],
                lanes[j]);
  }
  const Vec four[4] = {lanes[0][0], lanes[0][1], lanes[1][0], lanes[1][1]};
  float sums[4];
  across<Add>(four, sums);
  for (uint32_t j = 0; j < 2; ++j) {
    // With a NaN in the block all errors are NaN; an infinity times 1 / infinity is one.
    if (!(facts.largest[b + j] >= kLeast) || !(facts.error[0][b + j] >= 0)) {
      set_nothing(x + j * kBlockCols, out[j]);
      continue;
    }
    const float low = sums[2 * j], high = sums[2 * j + 1];
    const float all[3] = {low + high, low, high};
    out[j].scale = facts.largest[b + j] / facts.steps[b + j];
    for (int i = 0; i < 3; ++i) {
      out[j].minus_sum[i] = -static_cast<int32_t>(all[i]);
      out[j].scaled_sum[i] = out[j].scale * all[i];
    }
  }
}

void quantize_group(const float* x, ActivationBlock* out) {
  GroupFacts facts;
  for (uint32_t b = 0; b < kGroup; b += 4) {
    across_blocks<Most>(facts.largest + b, [&](uint32_t j) FORGE_INLINE_LAMBDA {
      return magnitudes(x + (b + j) * kBlockCols);
    });
  }
  for (uint32_t b = 0; b < kGroup; b += kLanes) {
    store(facts.to_one + b, set(1) / load(facts.largest + b));
  }
  for (uint32_t b = 0; b < kGroup; b += 4) measure_four(x + b * kBlockCols, b, facts);
  choose_steps(facts);
  for (uint32_t b = 0; b < kGroup; b += 2) write_two(x + b * kBlockCols, b, facts, out + b);
}

}  // namespace

void quantize(const float* x, uint64_t n, ActivationBlock* out) {
  constexpr uint64_t kFloats = kGroup * kBlockCols;
  for (; n >= kFloats; n -= kFloats, x += kFloats, out += kGroup) quantize_group(x, out);
  if (n == 0) return;
  float rest[kFloats] = {};
  ActivationBlock blocks[kGroup];
  memcpy(rest, x, n * sizeof(float));
  quantize_group(rest, blocks);
  memcpy(out, blocks, n / kBlockCols * sizeof(ActivationBlock));
}

}  // namespace forge::cpu::FORGE_TARGET

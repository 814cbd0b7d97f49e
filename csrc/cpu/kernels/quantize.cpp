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

// What is found out of the blocks of a group. The arrays are those of ActivationBlock, one number a block.
struct GroupFacts {
  alignas(64) float largest[kGroup];
  alignas(64) float to_one[kGroup];  // 1 / largest
  alignas(64) float error[kChoices][kGroup];
  alignas(64) float by[kGroup];  // what turns a block into its bytes
  alignas(64) float scale[kGroup];
  alignas(64) float low[kGroup], high[kGroup];  // sums of the bytes' halves
  alignas(64) int32_t minus_sum[3][kGroup];
  alignas(64) float scaled_sum[3][kGroup];
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

// The errors of four blocks from x on, the b-th of the group and those behind it.
FORGE_INLINE void measure_four(const float* x, uint32_t b, GroupFacts& facts) {
  FORGE_UNROLL(4)
  for (int i = 0; i < kChoices; ++i) {
    across_blocks<Add>(facts.error[i] + b, [&](uint32_t j) FORGE_INLINE_LAMBDA {
      return rounding_error(x + j * kBlockCols, set(kLargest[i]) * set(facts.to_one[b + j]));
    });
  }
}

// The scales with the least error, of kLanes blocks from the b-th on.
FORGE_INLINE void choose_scales(GroupFacts& facts, uint32_t b) {
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
  store(facts.by + b, steps * load(facts.to_one + b));
  store(facts.scale + b, load(facts.largest + b) / steps);
}

// Writes the bytes of a block; the sums of its first and of its last 16 are those of the lanes of
// `low` and `high`.
FORGE_INLINE void write_bytes(const float* x, Vec by, ActivationBlock& out, Vec& low, Vec& high) {
  low = high = zero();
  for (int i = 0; i < kVectors; ++i) {
    typedef int8_t Narrow __attribute__((vector_size(kLanes)));
    const Vec whole = round(load(x + kLanes * i) * by);
    const Narrow q = __builtin_convertvector(to_ints(whole), Narrow);
    memcpy(out.q + kLanes * i, &q, sizeof q);
    Vec& half = 2 * i < kVectors ? low : high;
    half = half + whole;
  }
}

// The bytes of four blocks, the b-th of the group and those behind it.
FORGE_INLINE void write_four(const float* x, uint32_t b, GroupFacts& facts, ActivationBlock* out) {
  Vec low[4], high[4];
  FORGE_UNROLL(4)
  for (uint32_t j = 0; j < 4; ++j) {
    write_bytes(x + j * kBlockCols, set(facts.by[b + j]), out[j], low[j], high[j]);
  }
  across<Add>(low, facts.low + b);
  across<Add>(high, facts.high + b);
}

// The sums of kLanes blocks from the b-th on.
FORGE_INLINE void find_sums(GroupFacts& facts, uint32_t b) {
  const Vec low = load(facts.low + b), high = load(facts.high + b);
  const Vec sums[3] = {low + high, low, high};
  FORGE_UNROLL(3)
  for (int i = 0; i < 3; ++i) {
    const IntVec minus = to_ints(zero() - sums[i]);
    memcpy(facts.minus_sum[i] + b, &minus, sizeof minus);
    store(facts.scaled_sum[i] + b, load(facts.scale + b) * sums[i]);
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

FORGE_INLINE void write_scale(const float* x, const GroupFacts& facts, uint32_t b,
                              ActivationBlock& out) {
  // With a NaN in the block all errors are NaN; an infinity times 1 / infinity is one.
  if (!(facts.largest[b] >= kLeast) || !(facts.error[0][b] >= 0)) return set_nothing(x, out);
  out.scale = facts.scale[b];
  FORGE_UNROLL(3)
  for (int i = 0; i < 3; ++i) {
    out.minus_sum[i] = facts.minus_sum[i][b];
    out.scaled_sum[i] = facts.scaled_sum[i][b];
  }
}

// Blocks of a group, a multiple of 4; numbers of those that it lacks are computed of anything.
FORGE_INLINE void quantize_group(const float* x, uint32_t n_blocks, ActivationBlock* out) {
  GroupFacts facts;
  for (uint32_t b = 0; b < n_blocks; b += 4) {
    across_blocks<Most>(facts.largest + b, [&](uint32_t j) FORGE_INLINE_LAMBDA {
      return magnitudes(x + (b + j) * kBlockCols);
    });
  }
  for (uint32_t b = 0; b < n_blocks; b += kLanes) {
    store(facts.to_one + b, set(1) / load(facts.largest + b));
  }
  for (uint32_t b = 0; b < n_blocks; b += 4) measure_four(x + b * kBlockCols, b, facts);
  for (uint32_t b = 0; b < n_blocks; b += kLanes) choose_scales(facts, b);
  for (uint32_t b = 0; b < n_blocks; b += 4) write_four(x + b * kBlockCols, b, facts, out + b);
  for (uint32_t b = 0; b < n_blocks; b += kLanes) find_sums(facts, b);
  for (uint32_t b = 0; b < n_blocks; ++b) write_scale(x + b * kBlockCols, facts, b, out[b]);
}

}  // namespace

void quantize(const float* x, uint64_t n, ActivationBlock* out) {
  uint64_t n_blocks = n / kBlockCols;
  for (; n_blocks >= kGroup; n_blocks -= kGroup, x += kGroup * kBlockCols, out += kGroup) {
    quantize_group(x, kGroup, out);
  }
  const auto fours = static_cast<uint32_t>(n_blocks / 4 * 4);
  if (fours > 0) quantize_group(x, fours, out);
  if (n_blocks == fours) return;
  float rest[4 * kBlockCols] = {};
  ActivationBlock blocks[4];
  memcpy(rest, x + fours * kBlockCols, (n_blocks - fours) * kBlockCols * sizeof(float));
  quantize_group(rest, 4, blocks);
  memcpy(out + fours, blocks, (n_blocks - fours) * sizeof(ActivationBlock));
}

}  // namespace forge::cpu::FORGE_TARGET

// Quantises activations to signed bytes, for products with quantised weights.

#include "../kernel_table.h"
#include "product_kernels.h"

namespace forge::cpu::FORGE_TARGET {

namespace {

constexpr int kVectors = kBlockCols / kLanes;

// Below this, 127 / largest overflows float32; the block counts as zeros.
constexpr float kLeast = 1e-35f;

// Candidate levels of the largest value of a block. Each rounds the other values differently; the
// one with the least squared error of all 32 is chosen. That lowers the error by a tenth at little
// cost.
constexpr int kChoices = 4;
constexpr float kLargest[kChoices] = {127, 126, 125, 124};

// Number of blocks quantised together: their scales and sums form one vector.
constexpr uint32_t kGroup = kLanes;

struct Add {
  FORGE_INLINE Vec of(Vec a, Vec b) { return a + b; }
};
struct Most {
  FORGE_INLINE Vec of(Vec a, Vec b) { return max(a, b); }
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

// The sum of squared distances of a scaled block from whole numbers.
FORGE_INLINE Vec rounding_error(const float* x, Vec by) {
  Vec error = zero();
  for (int i = 0; i < kVectors; ++i) {
    const Vec part = load(x + kLanes * i) * by;
    const Vec off = part - round(part);
    error = fma(off, off, error);
  }
  return error;
}

// For each block of a group, the lanes of vector(block) joined. There are a multiple of 4.
template <class Op, class VectorOf>
FORGE_INLINE Vec across_blocks(uint32_t n_blocks, VectorOf vector) {
  Four parts[kGroup / 4] = {};
  FORGE_UNROLL(4)
  for (uint32_t b = 0; b < kGroup; b += 4) {
    if (b >= n_blocks) break;
    const Vec four[4] = {vector(b), vector(b + 1), vector(b + 2), vector(b + 3)};
    parts[b / 4] = across<Op>(four);
  }
  return join(parts);
}

// Scales of the blocks of a group; NaN for blocks of zeros and blocks with NaN or infinity.
struct GroupScales {
  Vec scale;
  Vec by;  // 1 / scale
};

FORGE_INLINE GroupScales find_scales(const float* x, uint32_t n_blocks) {
  const Vec largest = across_blocks<Most>(
      n_blocks, [&](uint32_t b) FORGE_ALWAYS_INLINE { return magnitudes(x + b * kBlockCols); });
  const Vec to_one = set(1) / largest;
  Vec steps = zero(), least = zero();
  FORGE_UNROLL(4)
  for (int i = 0; i < kChoices; ++i) {
    alignas(64) float by[kGroup];
    store(by, set(kLargest[i]) * to_one);
    const Vec squares = across_blocks<Add>(n_blocks, [&](uint32_t b) FORGE_ALWAYS_INLINE {
      return rounding_error(x + b * kBlockCols, set(by[b]));
    });
    // In units of x: the error in steps is divided by the number of steps.
    const Vec error = squares * set(1 / (kLargest[i] * kLargest[i]));
    if (i == 0) {
      steps = set(kLargest[0]);
      least = error;
    } else {
      const Mask better = less(error, least);
      steps = select(better, set(kLargest[i]), steps);
      least = select(better, error, least);
    }
  }
  // A block with a NaN or an infinity, or of zeros only, has NaN for all its errors.
  const Vec nan_or_zero = least * zero();
  const Vec scale = select(less(largest, set(kLeast)), set(__builtin_nanf("")), largest / steps);
  return {scale + nan_or_zero, steps * to_one};
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

// A block of zeros, or NaN when x holds one.
void set_nothing(const float* x, ActivationBlock& out) {
  float nan_or_zero = 0;
  for (uint32_t i = 0; i < kBlockCols; ++i) nan_or_zero += x[i] * 0;
  memset(&out, 0, sizeof out);
  out.scale = nan_or_zero;
  for (float& scaled_sum : out.scaled_sum) scaled_sum = nan_or_zero;
}

// Writes all but the bytes of a group's blocks.
FORGE_INLINE void write_scales(const float* x, uint32_t n_blocks, Vec scale, Vec low, Vec high,
                               ActivationBlock* out) {
  const Vec sums[3] = {low + high, low, high};
  alignas(64) float scales[kGroup], scaled_sums[3][kGroup];
  alignas(64) int32_t minus_8_sums[3][kGroup];
  store(scales, scale);
  for (int i = 0; i < 3; ++i) {
    const IntVec minus = to_ints(set(-8) * sums[i]);
    memcpy(minus_8_sums[i], &minus, sizeof minus);
    store(scaled_sums[i], scale * sums[i]);
  }
  for (uint32_t b = 0; b < n_blocks; ++b) {
    if (scales[b] != scales[b]) {
      set_nothing(x + b * kBlockCols, out[b]);
      continue;
    }
    out[b].scale = scales[b];
    FORGE_UNROLL(3)
    for (int i = 0; i < 3; ++i) {
      out[b].minus_8_sums[i] = minus_8_sums[i][b];
      out[b].scaled_sum[i] = scaled_sums[i][b];
    }
  }
}

// A group of blocks, a multiple of 4.
FORGE_INLINE void quantize_group(const float* x, uint32_t n_blocks, ActivationBlock* out) {
  const GroupScales scales = find_scales(x, n_blocks);
  alignas(64) float by[kGroup];
  store(by, scales.by);
  Vec high_lanes[kGroup];
  const Vec low = across_blocks<Add>(n_blocks, [&](uint32_t b) FORGE_ALWAYS_INLINE {
    Vec low_lanes;
    write_bytes(x + b * kBlockCols, set(by[b]), out[b], low_lanes, high_lanes[b]);
    return low_lanes;
  });
  const Vec high = across_blocks<Add>(
      n_blocks, [&](uint32_t b) FORGE_ALWAYS_INLINE { return high_lanes[b]; });
  write_scales(x, n_blocks, scales.scale, low, high, out);
}

}  // namespace

void quantize(const float* x, uint64_t n, ActivationBlock* out) {
  const uint64_t n_blocks = n / kBlockCols;
  uint64_t b = 0;
  for (; b + kGroup <= n_blocks; b += kGroup) quantize_group(x + b * kBlockCols, kGroup, out + b);
  const auto fours = static_cast<uint32_t>((n_blocks - b) / 4 * 4);
  if (fours > 0) quantize_group(x + b * kBlockCols, fours, out + b);
  b += fours;
  if (b == n_blocks) return;
  if (n_blocks >= 4) {
    // Recomputes some blocks, with the same result.
    b = n_blocks - 4;
    return quantize_group(x + b * kBlockCols, 4, out + b);
  }
  float rest[4 * kBlockCols] = {};
  ActivationBlock blocks[4];
  memcpy(rest, x, n * sizeof(float));
  quantize_group(rest, 4, blocks);
  memcpy(out, blocks, n_blocks * sizeof(ActivationBlock));
}

}  // namespace forge::cpu::FORGE_TARGET

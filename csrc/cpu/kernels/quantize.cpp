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
constexpr float kLargest[] = {127, 126, 125, 124};

int32_t sum_bytes(const int8_t* q) {
  int32_t sum = 0;
  for (uint32_t i = 0; i < kBlockCols / 2; ++i) sum += q[i];
  return sum;
}

// The squared distance of x from its multiples of 1 / inverse.
float rounding_error(const Vec (&x)[kVectors], float inverse) {
  Vec error = zero();
  for (Vec part : x) {
    const Vec scaled = part * set(inverse);
    const Vec off = scaled - round(scaled);
    error = fma(off, off, error);
  }
  return sum(error) / (inverse * inverse);
}

void quantize_block(const float* x, ActivationBlock& out) {
  Vec part[kVectors];
  Vec most = zero(), broken = zero();
  for (int i = 0; i < kVectors; ++i) {
    part[i] = load(x + kLanes * i);
    most = max(max(part[i], zero() - part[i]), most);
    // Zero, or NaN once there is a NaN or an infinity.
    broken = fma(part[i], zero(), broken);
  }
  const float largest_x = largest(most), nan_or_zero = sum(broken);
  if (nan_or_zero != 0 || !(largest_x >= kLeast)) {
    memset(&out, 0, sizeof out);
    out.scale = nan_or_zero;
    for (float& scaled : out.scaled_sum) scaled = nan_or_zero;
    return;
  }
  float inverse = 0, least = 0;
  for (const float to : kLargest) {
    const float error = rounding_error(part, to / largest_x);
    if (inverse == 0 || error < least) {
      inverse = to / largest_x;
      least = error;
    }
  }
  out.scale = 1 / inverse;
  for (int i = 0; i < kVectors; ++i) {
    typedef int8_t Narrow __attribute__((vector_size(kLanes)));
    const Narrow q = __builtin_convertvector(to_ints(round(part[i] * set(inverse))), Narrow);
    memcpy(out.q + kLanes * i, &q, sizeof q);
  }
  const int32_t low = sum_bytes(out.q), high = sum_bytes(out.q + kBlockCols / 2);
  const int32_t sums[3] = {low + high, low, high};
  for (int i = 0; i < 3; ++i) {
    out.minus_sum[i] = -sums[i];
    out.scaled_sum[i] = out.scale * static_cast<float>(sums[i]);
  }
}

}  // namespace

void quantize(const float* x, uint64_t n, ActivationBlock* out) {
  for (uint64_t i = 0; i < n; i += kBlockCols) quantize_block(x + i, *out++);
}

}  // namespace forge::cpu::FORGE_TARGET

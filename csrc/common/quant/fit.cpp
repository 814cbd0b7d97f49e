#include "fit.h"

#include <algorithm>
#include <cmath>

// The levels of the weights depend on the step, and the best step on the levels. So a few steps
// near the one that exactly spans the weights are tried: each gives levels, and the levels give the
// step of least squares for them. The best of these is used.

namespace forge {
namespace {

constexpr uint32_t kMostWeights = 32;

// The tried steps would span the weights with this many levels more or fewer than exist.
constexpr float kDeviations[] = {0.0f, -0.9f, -0.6f, -0.3f, 0.3f, 0.6f, 0.9f, 1.2f};

// Number of partial sums, which compilers turn into vectors. Counts are multiples of it.
constexpr uint32_t kLanes = 4;

struct Sum {
  float lanes[kLanes] = {};

  float total() const {
    float sum = 0.0f;
    for (const float lane : lanes) sum += lane;
    return sum;
  }
};

}  // namespace

float extreme(const float* in, uint32_t n) {
  float largest = 0.0f;
  for (uint32_t i = 0; i < n; ++i) {
    if (std::fabs(in[i]) > std::fabs(largest)) largest = in[i];
  }
  return largest;
}

float fit_step(const float* in, const float* importance, uint32_t n, int half) {
  const auto low = static_cast<float>(-half), high = static_cast<float>(half - 1);
  const float farthest = extreme(in, n);
  if (farthest == 0.0f) return 0.0f;
  float best = farthest / low;
  float most = -1.0f;  // the largest part of the sum of squares that levels explain
  for (const float deviation : kDeviations) {
    const float inverse = (low - deviation) / farthest;
    if (!std::isfinite(inverse)) continue;
    Sum xq_parts, qq_parts;
    for (uint32_t i = 0; i < n; i += kLanes) {
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        const float x = in[i + lane];
        const float q = nearest_level(x * inverse, low, high);
        const float wq = importance[i + lane] * q;
        xq_parts.lanes[lane] += x * wq;
        qq_parts.lanes[lane] += q * wq;
      }
    }
    const float xq = xq_parts.total(), qq = qq_parts.total();
    if (qq > 0.0f && xq * xq > most * qq) {
      most = xq * xq / qq;
      best = xq / qq;
    }
  }
  return best;
}

Affine fit_affine(const float* in, const float* importance, uint32_t n, int top) {
  const auto high = static_cast<float>(top);
  const auto [min_at, max_at] = std::minmax_element(in, in + n);
  const float low = std::min(*min_at, 0.0f), range = *max_at - low;
  if (!(range > 0.0f)) return {0.0f, -low};
  Affine best{range / high, -low};
  float least = INFINITY;
  Sum count_parts;
  for (uint32_t i = 0; i < n; ++i) count_parts.lanes[i % kLanes] += importance[i];
  const float count = count_parts.total();
  for (const float deviation : kDeviations) {
    const float inverse = (high + deviation) / range;
    if (!std::isfinite(inverse)) continue;
    float levels[kMostWeights];
    Sum x_parts, q_parts, xq_parts, qq_parts;
    for (uint32_t i = 0; i < n; i += kLanes) {
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        const float weight = in[i + lane];
        const float level = nearest_level((weight - low) * inverse, 0.0f, high);
        levels[i + lane] = level;
        const float important = importance[i + lane] * level;
        x_parts.lanes[lane] += importance[i + lane] * weight;
        q_parts.lanes[lane] += important;
        xq_parts.lanes[lane] += weight * important;
        qq_parts.lanes[lane] += level * important;
      }
    }
    const float x = x_parts.total(), q = q_parts.total();
    const float xq = xq_parts.total(), qq = qq_parts.total();
    // The least-squares line x = step * q - min, through zero if min would be negative.
    const float spread = count * qq - q * q;
    if (!(spread > 0.0f)) continue;
    float step = (count * xq - x * q) / spread;
    float min = (step * q - x) / count;
    if (min < 0.0f) {
      min = 0.0f;
      step = xq / qq;
    }
    if (!(step > 0.0f)) continue;
    Sum error_parts;
    for (uint32_t i = 0; i < n; i += kLanes) {
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        const float difference = step * levels[i + lane] - min - in[i + lane];
        error_parts.lanes[lane] += importance[i + lane] * (difference * difference);
      }
    }
    const float error = error_parts.total();
    if (error < least) {
      least = error;
      best = {step, min};
    }
  }
  return best;
}

uint8_t nearest_of_16(float x, const int8_t (&levels)[16]) {
  // A count of the midpoints below x, which compilers turn into vectors.
  int index = 0;
  for (uint32_t i = 0; i < 15; ++i) {
    index += 2.0f * x > static_cast<float>(levels[i] + levels[i + 1]) ? 1 : 0;
  }
  return static_cast<uint8_t>(index);
}

float fit_table_step(const float* in, const float* importance, uint32_t n,
                     const int8_t (&levels)[16]) {
  const float farthest = extreme(in, n);
  if (farthest == 0.0f) return 0.0f;
  // The weight farthest from zero gets about the lowest level, or with the other sign the highest.
  float best = farthest / static_cast<float>(levels[0]);
  float most = -1.0f;
  for (const int8_t end : {levels[0], levels[15]}) {
    for (const float deviation : kDeviations) {
      // Neighbouring levels at the ends are about 20 apart.
      const float inverse = (static_cast<float>(end) + 10.0f * deviation) / farthest;
      if (!std::isfinite(inverse)) continue;
      float xq = 0.0f, qq = 0.0f;
      for (uint32_t i = 0; i < n; ++i) {
        const auto q = static_cast<float>(levels[nearest_of_16(in[i] * inverse, levels)]);
        const float wq = importance[i] * q;
        xq += in[i] * wq;
        qq += q * wq;
      }
      if (qq > 0.0f && xq * xq > most * qq) {
        most = xq * xq / qq;
        best = xq / qq;
      }
    }
  }
  return best;
}

}  // namespace forge

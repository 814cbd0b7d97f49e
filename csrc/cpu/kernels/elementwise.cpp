// Norms, gates and other operations on single rows.

#include "../kernel_table.h"
#include "vector_math.h"

namespace forge::cpu::FORGE_TARGET {

namespace {

// Returns 1 / sqrt(mean(x^2) + eps) in every lane.
FORGE_INLINE Vec inverse_rms(const float* x, uint64_t n, float eps) {
  const float mean = sum_of_squares(x, n) / static_cast<float>(n);
  return set(1.0f / __builtin_sqrtf(mean + eps));
}

}  // namespace

void rms_norm(const float* x, const float* weight, uint64_t n, float eps, float offset,
              const float* residual, float* out) {
  const Vec scale = inverse_rms(x, n, eps);
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    const Vec factor = load_up_to(weight + i, m) + set(offset);
    const Vec normed = load_up_to(x + i, m) * scale;
    const Vec base = residual ? load_up_to(residual + i, m) : zero();
    store_up_to(out + i, fma(normed, factor, base), m);
  });
}

void layer_norm(const float* x, const float* weight, const float* bias, uint64_t n, float eps,
                float* out) {
  Vec total = zero();
  for_vectors(n, [&](uint64_t i, int m)
                     FORGE_ALWAYS_INLINE { total = total + load_up_to(x + i, m); });
  const float mean = sum(total) / static_cast<float>(n);
  Vec squares = zero();
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    const Vec a = first_of(load_up_to(x + i, m) - set(mean), m);
    squares = fma(a, a, squares);
  });
  const float variance = sum(squares) / static_cast<float>(n);
  const Vec scale = set(1.0f / __builtin_sqrtf(variance + eps));
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    const Vec normed = (load_up_to(x + i, m) - set(mean)) * scale;
    const Vec base = bias ? load_up_to(bias + i, m) : zero();
    store_up_to(out + i, fma(normed, load_up_to(weight + i, m), base), m);
  });
}

void glu(const float* gate, const float* up, uint64_t n, uint32_t unit, float* out) {
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    store_up_to(out + i, gated_unit(unit, load_up_to(gate + i, m), load_up_to(up + i, m)), m);
  });
}

void sigmoid_gate(const float* x, const float* gate, uint64_t n, const float* residual,
                  float* out) {
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    const Vec base = residual ? load_up_to(residual + i, m) : zero();
    store_up_to(out + i, fma(sigmoid(load_up_to(gate + i, m)), load_up_to(x + i, m), base), m);
  });
}

void gated_rms_norm(const float* x, const float* gate, const float* weight, uint64_t n, float eps,
                    uint32_t activation, float* out) {
  const Vec scale = inverse_rms(x, n, eps);
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    const Vec normed = load_up_to(x + i, m) * scale * load_up_to(weight + i, m);
    store_up_to(out + i, normed * activate(activation, load_up_to(gate + i, m)), m);
  });
}

void softcap(const float* x, uint64_t n, float cap, float* out) {
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    store_up_to(out + i, set(cap) * tanh(load_up_to(x + i, m) / set(cap)), m);
  });
}

void clamp(const float* x, uint64_t n, float limit, float* out) {
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    // NaN, as the second operand, passes through min and max.
    store_up_to(out + i, max(set(-limit), min(set(limit), load_up_to(x + i, m))), m);
  });
}

void xielu(const float* x, uint64_t n, float alpha_p, float alpha_n, float beta, float eps,
           float* out) {
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    const Vec v = load_up_to(x + i, m);
    // exp(y) - 1 = 2 tanh(y / 2) / (1 - tanh(y / 2)), which loses no digits near 0.
    const Vec t = tanh(min(v, set(eps)) * set(0.5f));
    const Vec negative = ((t + t) / (set(1.0f) - t) - v) * set(alpha_n);
    const Vec positive = v * v * set(alpha_p);
    store_up_to(out + i, fma(v, set(beta), select(less(zero(), v), positive, negative)), m);
  });
}

void scale(const float* x, uint64_t n, float factor, float* out) {
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    store_up_to(out + i, load_up_to(x + i, m) * set(factor), m);
  });
}

void epilogue(const float* x, uint64_t n, uint32_t activation, float alpha, const float* residual,
              float* out) {
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    const Vec base = residual ? load_up_to(residual + i, m) : zero();
    store_up_to(out + i, fma(activate(activation, load_up_to(x + i, m)), set(alpha), base), m);
  });
}

float dot(const float* x, const float* y, uint64_t n) {
  // Four sums, which do not wait for each other.
  constexpr int kSums = 4;
  Vec sums[kSums] = {zero(), zero(), zero(), zero()};
  uint64_t i = 0;
  for (; i + kSums * kLanes <= n; i += kSums * kLanes) {
    for (int k = 0; k < kSums; ++k) {
      sums[k] = fma(load(x + i + k * kLanes), load(y + i + k * kLanes), sums[k]);
    }
  }
  Vec rest = zero();
  for_vectors(n - i, [&](uint64_t j, int m) FORGE_ALWAYS_INLINE {
    rest = fma(load_up_to(x + i + j, m), load_up_to(y + i + j, m), rest);
  });
  return sum(((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest);
}

void add_scaled(float* accumulator, const float* x, float weight, uint64_t n) {
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    const Vec added = fma(load_up_to(x + i, m), set(weight), load_up_to(accumulator + i, m));
    store_up_to(accumulator + i, added, m);
  });
}

void rotate(float* heads, uint32_t n_heads, uint32_t head_dim, const float* table, uint64_t n,
            uint32_t layout) {
  const float* cos = table;
  const float* sin = table + n;
  constexpr uint32_t interleaved = 1;  // FORGE_ROPE_INTERLEAVED
  for (uint32_t h = 0; h < n_heads; ++h) {
    float* head = heads + static_cast<uint64_t>(h) * head_dim;
    if (layout == interleaved) {
      for (uint64_t i = 0; i < n; ++i) {
        const float a = head[2 * i], b = head[2 * i + 1];
        head[2 * i] = a * cos[i] - b * sin[i];
        head[2 * i + 1] = a * sin[i] + b * cos[i];
      }
    } else {
      for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
        const Vec a = load_up_to(head + i, m), b = load_up_to(head + n + i, m);
        const Vec c = load_up_to(cos + i, m), s = load_up_to(sin + i, m);
        store_up_to(head + i, a * c - b * s, m);
        store_up_to(head + n + i, fma(a, s, b * c), m);
      });
    }
  }
}

void to_f16(const float* x, uint64_t n, uint8_t* out) {
  for_vectors(n, [&](uint64_t i, int m) FORGE_ALWAYS_INLINE {
    if (m == kLanes) {
      store_f16(out + 2 * i, load(x + i));
    } else {
      uint8_t lanes[2 * kLanes];
      store_f16(lanes, load_n(x + i, m));
      memcpy(out + 2 * i, lanes, 2 * static_cast<size_t>(m));
    }
  });
}

namespace {

// Levels of a cache: x = scale level, where `scale_of` is a function of the largest and smallest x.
template <int lowest, int highest, class ScaleOf>
FORGE_INLINE void to_levels(const float* x, uint64_t n, ScaleOf scale_of, int8_t* out,
                            uint8_t* scales) {
  for (uint64_t begin = 0; begin < n; begin += kKvBlock, scales += 2) {
    const uint64_t size = n - begin < kKvBlock ? n - begin : kKvBlock;
    float block[kKvBlock + 16] = {};
    memcpy(block, x + begin, size * sizeof(float));
    Vec high = zero(), low = zero(), check = zero();
    for (uint64_t i = 0; i < kKvBlock; i += kLanes) {
      const Vec a = load(block + i);
      high = max(high, a);
      low = max(low, negate(a));
      check = check + a * zero();  // NaN where a is NaN or infinite
    }
    const float bad = sum(check);
    uint8_t lanes[2 * kLanes];
    store_f16(lanes, set(bad != bad ? bad : scale_of(largest(high), -largest(low))));
    memcpy(scales, lanes, 2);
    const float step = f16_at(lanes);
    const Vec inverse = set(step != 0 ? 1 / step : 0);
    for (uint64_t i = 0; i < kKvBlock; i += kLanes) {
      const Vec level = round(load(block + i) * inverse);
      store(block + i, min(set(highest), max(set(lowest), level)));
    }
    for (uint64_t i = 0; i < size; ++i) {
      out[begin + i] = bad != bad ? 0 : static_cast<int8_t>(block[i]);
    }
  }
}

}  // namespace

void to_q8(const float* x, uint64_t n, int8_t* out, uint8_t* scales) {
  const auto scale_of = [](float high, float low) { return (high > -low ? high : -low) / 127; };
  to_levels<-127, 127>(x, n, scale_of, out, scales);
}

void to_q4(const float* x, uint64_t n, int8_t* out, uint8_t* scales) {
  const auto scale_of = [](float high, float low) { return (high >= -low ? high : low) / -8; };
  to_levels<-8, 7>(x, n, scale_of, out, scales);
}

}  // namespace forge::cpu::FORGE_TARGET

#pragma once

// The activations of csrc/forge.h, and the epilogue of a product.

#include "row_set.h"

// P(X <= x) of the normal distribution, 0.5 (1 + erf(x / sqrt(2))): MSL has no erf. The rational
// function of M. Abramowitz and I. A. Stegun, "Handbook of Mathematical Functions", 7.1.26, times
// exp(-x^2 / 2), which keeps small tails small; off by at most 7.5e-8.
inline float normal_distribution(float x) {
  const float z = fabs(x) * 0.7071067812f;
  const float t = 1.0f / fma(0.3275911f, z, 1.0f);
  float tail = fma(1.061405429f, t, -1.453152027f);
  tail = fma(tail, t, 1.421413741f);
  tail = fma(tail, t, -0.284496736f);
  tail = fma(tail, t, 0.254829592f);
  tail *= 0.5f * t * precise::exp(-z * z);
  return x < 0 ? tail : 1.0f - tail;
}

// FORGE_IDENTITY, FORGE_SILU, FORGE_GELU_TANH, FORGE_GELU_ERF, FORGE_RELU_SQUARED.
inline float activate(uint activation, float x) {
  switch (activation) {
    case 1:
      return x / (1.0f + precise::exp(-x));
    case 2:
      return 0.5f * x * (1.0f + precise::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
    case 3:
      return x * normal_distribution(x);
    case 5:
      return x < 0 ? 0.0f : x * x;
    default:
      return x;
  }
}

// A gated unit of csrc/forge.h: activation(gate) * up, or FORGE_CLAMPED_SWIGLU.
inline float gated_unit(uint unit, float gate, float up) {
  if (unit != 4) return activate(unit, gate) * up;
  // Comparisons, since min and max would drop a NaN.
  const float g = gate > 7.0f ? 7.0f : gate;
  const float u = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
  return (u + 1.0f) * (g / (1.0f + precise::exp(-1.702f * g)));
}

// The output of a product and the epilogue applied to it.
struct ProductOutput {
  device float* out;
  device const float* bias;
  device const float* residual;
  uint out_stride;
  Epilogue epilogue;
};

inline ProductOutput product_output(device float* out, device const float* bias,
                                    device const float* residual, constant MatvecArgs& args) {
  return {out, bias, residual, args.out_stride,
          {args.epilogue.alpha, args.epilogue.activation, args.epilogue.has_bias,
           args.epilogue.has_residual, args.epilogue.opened, args.epilogue.unit}};
}

inline void store_product(ProductOutput to, float product, uint token, uint row) {
  const ulong at = ulong(token) * to.out_stride + row;
  const float biased = to.epilogue.has_bias != 0 ? product + to.bias[row] : product;
  const float value = to.epilogue.alpha * activate(to.epilogue.activation, biased);
  to.out[at] = to.epilogue.has_residual != 0 ? to.residual[at] + value : value;
}

// Stores a product. Where rows of a gate alternate with the rows that they gate, stores one gated
// number for `product` and its pair's `second`.
inline void store_products(ProductOutput to, float product, float second, uint token, uint row) {
  if (to.epilogue.opened == 0) return store_product(to, product, token, row);
  if (row % 2 != 0) return;
  to.out[ulong(token) * to.out_stride + row / 2] = gated_unit(to.epilogue.unit, product, second);
}

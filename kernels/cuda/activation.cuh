#pragma once

// The activations of csrc/forge.h, and the epilogue of a product.

#include "prelude.cuh"

// FORGE_IDENTITY, FORGE_SILU, FORGE_GELU_TANH, FORGE_GELU_ERF, FORGE_RELU_SQUARED.
DEVICE float activate(u32 activation, float x) {
  switch (activation) {
    case 1:
      return x / (1.0f + expf(-x));
    case 2:
      return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    case 3:
      return 0.5f * x * (1.0f + erff(x * 0.7071067812f));
    case 5:
      return x < 0 ? 0.0f : x * x;
    default:
      return x;
  }
}

// An activation of the gate times up, or FORGE_CLAMPED_SWIGLU, whose comparisons let NaN through.
DEVICE float gated_unit(u32 unit, float gate, float up) {
  if (unit != 4) return activate(unit, gate) * up;
  const float g = gate > 7.0f ? 7.0f : gate;
  const float u = up > 7.0f ? 7.0f : up < -7.0f ? -7.0f : up;
  return (u + 1.0f) * (g / (1.0f + expf(-1.702f * g)));
}

DEVICE void store_product(float* out, const Epilogue& e, float product, u32 token, u32 row) {
  const u64 at = u64(token) * e.out_stride + row;
  const float biased = e.bias ? product + e.bias[row] : product;
  const float value = e.alpha * activate(e.activation, biased);
  out[at] = e.residual ? e.residual[at] + value : value;
}

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

// A product and what its epilogue adds to it.
struct LoadedProduct {
  float product, bias, residual;
  u64 at;
};
DEVICE LoadedProduct load_epilogue(const Epilogue& e, float product, u32 token, u32 row) {
  const u64 at = u64(token) * e.out_stride + row;
  return {product, e.bias ? e.bias[row] : 0.0f, e.residual ? e.residual[at] : 0.0f, at};
}
DEVICE void store_product(float* out, const Epilogue& e, const LoadedProduct& p) {
  const float biased = e.bias ? p.product + p.bias : p.product;
  const float value = e.alpha * activate(e.activation, biased);
  out[p.at] = e.residual ? p.residual + value : value;
}
DEVICE void store_product(float* out, const Epilogue& e, float product, u32 token, u32 row) {
  store_product(out, e, load_epilogue(e, product, token, row));
}

/** The activation functions and gated units in float64. */
import type { Activation, GatedUnit } from "../../src/backend.ts";

export const activations: readonly Activation[] = [
  "identity",
  "silu",
  "gelu_tanh",
  "gelu_erf",
  "relu_squared",
];

export const gatedUnits: readonly GatedUnit[] = [...activations, "clamped_swiglu"];

/** Taylor's series of erf near 0, the continued fraction of erfc elsewhere: 15 digits. */
function erf(x: number): number {
  const size = Math.abs(x);
  if (size < 2.5) {
    let term = x, sum = x;
    for (let n = 1; n < 80; n++) {
      term *= -x * x / n;
      sum += term / (2 * n + 1);
    }
    return 2 / Math.sqrt(Math.PI) * sum;
  }
  let fraction = size;
  for (let n = 80; n >= 1; n--) fraction = size + n / 2 / fraction;
  return Math.sign(x) * (1 - Math.exp(-x * x) / Math.sqrt(Math.PI) / fraction);
}

/** `activation(x)` as `csrc/forge.h` defines it. */
export function activate(activation: Activation, x: number): number {
  switch (activation) {
    case "identity":
      return x;
    case "silu":
      return x / (1 + Math.exp(-x));
    case "gelu_tanh":
      return 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
    case "gelu_erf":
      return 0.5 * x * (1 + erf(x / Math.SQRT2));
    case "relu_squared":
      return x < 0 ? 0 : x * x;
  }
}

/** A gated unit as `csrc/forge.h` defines it. */
export function gatedUnit(unit: GatedUnit, gate: number, up: number): number {
  if (unit !== "clamped_swiglu") return activate(unit, gate) * up;
  const g = Math.min(gate, 7);
  const u = Math.max(-7, Math.min(up, 7));
  return (u + 1) * g / (1 + Math.exp(-1.702 * g));
}

/** Enumerations of the ABI. */
import type { Activation, GatedUnit } from "../../src/backend.ts";
import type { Packing } from "../../src/formats/tensor_info.ts";

/** Activations. */
export const ACTIVATIONS: Record<Activation, number> = {
  identity: 0,
  silu: 1,
  gelu_tanh: 2,
  gelu_erf: 3,
  relu_squared: 5,
};

/** Gated units. */
const GATED_UNITS: Record<GatedUnit, number> = { ...ACTIVATIONS, clamped_swiglu: 4 };

/** RoPE layouts. */
export const ROPE_LAYOUTS = { half: 0, interleaved: 1 } as const;

/** Orders of attention heads. */
const HEAD_ORDERS = { grouped: 0, tiled: 1 } as const;

/** Packings of matrices. */
export const PACKINGS: Record<Packing, number> = {
  f8_e4m3: 0,
  int4: 1,
  gptq: 2,
  awq: 3,
  int8: 4,
  float: 5,
  nvfp4: 6,
  nvfp4_divided: 7,
  nvfp4_blocks: 8,
};

/** Scores of routers. */
export const ROUTER_SCORES = { softmax: 0, sigmoid: 1, sparsemixer: 2 } as const;

/** Enumerations of operands, by operand name in the table of operations. */
export const ENUMERATIONS: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  activation: ACTIVATIONS,
  unit: GATED_UNITS,
  rope_layout: ROPE_LAYOUTS,
  head_order: HEAD_ORDERS,
  scores: ROUTER_SCORES,
};

/** The numbers of the ABI's enumerations. */
import type { Activation, GatedUnit } from "../../src/backend.ts";
import type { Packing } from "../../src/formats/tensor_info.ts";

/** The ABI's numbers of activations. */
export const ACTIVATIONS: Record<Activation, number> = {
  identity: 0,
  silu: 1,
  gelu_tanh: 2,
  gelu_erf: 3,
  relu_squared: 5,
};

/** The ABI's numbers of gated units. */
export const GATED_UNITS: Record<GatedUnit, number> = { ...ACTIVATIONS, clamped_swiglu: 4 };

/** The ABI's numbers of RoPE layouts. */
export const ROPE_LAYOUTS = { half: 0, interleaved: 1 } as const;

/** The ABI's numbers of head orders. */
export const HEAD_ORDERS = { grouped: 0, tiled: 1 } as const;

/** The ABI's numbers of packings. */
export const PACKINGS: Record<Packing, number> = {
  f8_e4m3: 0,
  int4: 1,
  gptq: 2,
  awq: 3,
  int8: 4,
  float: 5,
};

/** The ABI's numbers of routers' scores. */
export const ROUTER_SCORES = { softmax: 0, sigmoid: 1 } as const;

/** The enumerations of operands, by the names of the operands in the table of operations. */
export const ENUMERATIONS: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  activation: ACTIVATIONS,
  unit: GATED_UNITS,
  rope_layout: ROPE_LAYOUTS,
  head_order: HEAD_ORDERS,
  scores: ROUTER_SCORES,
};

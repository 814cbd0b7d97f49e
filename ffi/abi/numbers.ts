/** What the ABI has numbers for, and its struct of columns. */
import type { Activation, ColumnPiece, GatedUnit } from "../../src/backend.ts";
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

/** Bytes of a `forge_piece`. */
export const PIECE_BYTES = 20;

/** Pieces of columns as structs of the ABI. */
export function packPieces(pieces: readonly ColumnPiece[]): Uint8Array<ArrayBuffer> {
  const block = new DataView(new ArrayBuffer(pieces.length * PIECE_BYTES));
  pieces.forEach(({ value, width, first = 0, step = 0, scale = 1 }, i) => {
    [value, width, first, step].forEach((word, field) => {
      block.setUint32(i * PIECE_BYTES + 4 * field, word, true);
    });
    block.setFloat32(i * PIECE_BYTES + 16, scale, true);
  });
  return new Uint8Array(block.buffer);
}

/**
 * Column orders of GPTQ matrices (`desc_act`). Rows are built with the columns of each group next
 * to one another, and products take activations in the same order. Weights so keep the precision
 * and size of matrices without an order.
 */
import type { WeightSlice } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { tensorBytes, type TensorInfo } from "../../formats/tensor_info.ts";

/** Slices of one weight, and the order of its columns, expert after expert. */
interface OrderedSlices {
  readonly slices: readonly WeightSlice[];
  readonly columnOrder?: Uint32Array<ArrayBuffer>;
}

/**
 * Finds the column order of each expert; all experts have the same number of slices. If the slices
 * of an expert disagree, those with an order become F32, four bytes a weight. This is rare:
 * quantisers choose one order for all matrices with the same input.
 */
export function withColumnOrder(
  slices: readonly WeightSlice[],
  cols: number,
  nExperts: number,
): OrderedSlices {
  if (slices.every((slice) => orderOf(slice) === undefined)) return { slices };
  const each = slices.length / nExperts;
  if (!Number.isInteger(each)) {
    throw new RangeError(`${slices.length} slices of ${nExperts} experts`);
  }
  const columnOrder = new Uint32Array(nExperts * cols);
  let hasOrder = false;
  const result = Array.from({ length: nExperts }, (_, expert) => {
    const own = slices.slice(expert * each, (expert + 1) * each);
    const order = orderOf(own[0]!);
    const agree = order !== undefined && own.every((slice) => isSame(orderOf(slice), order));
    columnOrder.set(agree ? order : plainOrder(cols), expert * cols);
    hasOrder ||= agree;
    return agree ? own : own.map(asFloats);
  }).flat();
  return hasOrder ? { slices: result, columnOrder } : { slices: result };
}

const orderOf = ({ tensor }: WeightSlice) => tensor.packed?.columnOrder;

const plainOrder = (cols: number) => Uint32Array.from({ length: cols }, (_, i) => i);

function isSame(a: Uint32Array | undefined, b: Uint32Array): boolean {
  return a !== undefined && a.length === b.length && a.every((column, i) => column === b[i]);
}

/** Returns the slice as F32, its columns in their original order. */
function asFloats(slice: WeightSlice): WeightSlice {
  const { tensor } = slice;
  const { packed } = tensor;
  if (packed?.columnOrder === undefined) return slice;
  return { ...slice, tensor: floats({ ...tensor, packed: { ...packed, columnOrder: undefined } }) };
}

function floats(tensor: TensorInfo): TensorInfo {
  const bytes = tensorBytes("F32", tensor.shape);
  if (typeof bytes === "string") throw new ForgeError("unsupported", `${tensor.name}: ${bytes}`);
  return { ...tensor, type: "F32", bytes };
}

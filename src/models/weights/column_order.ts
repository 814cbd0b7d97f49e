/**
 * Weights of several matrices whose columns GPTQ has put into an order (`desc_act`): the rows of
 * each are made with the columns of a group next to one another, and products take activations in
 * the same order, so that weights stay as exact and as small as those of others.
 */
import type { WeightSlice } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { tensorBytes, type TensorInfo } from "../../formats/tensor_info.ts";

/** Slices that are one weight, and the order of its columns, of one expert behind the other. */
export interface OrderedSlices {
  readonly slices: readonly WeightSlice[];
  readonly columnOrder?: Uint32Array<ArrayBuffer>;
}

/**
 * Finds the order of columns of each expert, which has an equal number of slices. Where its slices
 * disagree, those with an order become floats, four bytes a weight: quantisers choose one order for
 * all matrices with the same input.
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

/** A slice whose rows are made with their columns in order. */
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

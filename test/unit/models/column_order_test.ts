/** Slices of a weight keep their column order or become floats. */
import { assertEquals } from "@std/assert";
import type { WeightSlice } from "../../../src/backend.ts";
import type { TensorInfo } from "../../../src/formats/tensor_info.ts";
import { withColumnOrder } from "../../../src/models/weights/column_order.ts";

const COLS = 4;

/** A slice with a column order, or without. */
function slice(...order: number[]): WeightSlice {
  const codes: TensorInfo = { name: "", type: "I32", shape: [], file: "", offset: 0, bytes: 0 };
  const columnOrder = order.length === 0 ? undefined : Uint32Array.from(order);
  const packed = { packing: "gptq", groupRows: 1, groupCols: 2, codes, columnOrder } as const;
  return { tensor: { ...codes, type: "Q5_0", shape: [8, COLS], packed } };
}

/** The types of the slices of one weight, and its column order. */
function outcome(slices: readonly WeightSlice[], nExperts: number) {
  const found = withColumnOrder(slices, COLS, nExperts);
  return [found.slices.map(({ tensor }) => tensor.type), found.columnOrder];
}

Deno.test("matrices with equal column orders become one weight with that order", () => {
  const order = [3, 1, 2, 0];
  assertEquals(outcome([slice(), slice()], 1), [["Q5_0", "Q5_0"], undefined]);
  assertEquals(outcome([slice(...order), slice(...order)], 1), [
    ["Q5_0", "Q5_0"],
    Uint32Array.from(order),
  ]);
});

Deno.test("matrices with different column orders become F32", () => {
  const disagreed = [slice(3, 1, 2, 0), slice(0, 1, 3, 2), slice()];
  assertEquals(outcome(disagreed, 1), [["F32", "F32", "Q5_0"], undefined]);
  const [first] = withColumnOrder(disagreed, COLS, 1).slices;
  assertEquals(first?.tensor.bytes, 8 * COLS * 4);
  assertEquals(first?.tensor.packed?.columnOrder, undefined);
});

Deno.test("each expert has its own column order", () => {
  const a = [3, 1, 2, 0], b = [1, 0, 3, 2];
  const experts = [slice(...a), slice(...a), slice(...b), slice(...b), slice(...a), slice(...b)];
  assertEquals(outcome(experts, 3), [
    ["Q5_0", "Q5_0", "Q5_0", "Q5_0", "F32", "F32"],
    Uint32Array.from([...a, ...b, 0, 1, 2, 3]),
  ]);
});

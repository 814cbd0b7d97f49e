/** Slices of a weight keep their column order or become floats. */
import { LazyWeights } from "../../../src/engine/quantize/lazy_weights.ts";
import { assertEquals, assertThrows } from "@std/assert";
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
  assertEquals(outcome(disagreed.slice(0, 2), 1), [["F32", "F32"], undefined]);
  assertEquals(outcome([disagreed[0]!, slice()], 1), [["F32", "Q5_0"], undefined]);
  const [first] = withColumnOrder(disagreed, COLS, 1).slices;
  assertEquals(first?.tensor.bytes, 8 * COLS * 4);
  assertEquals(first?.tensor.packed?.columnOrder, undefined);
});

Deno.test("each expert has its own column order", () => {
  const a = [3, 1, 2, 0], b = [1, 0, 3, 2];
  const experts = [slice(...a), slice(...a), slice(...b), slice(...b), slice(...a), slice(...b)];
  assertEquals(outcome([slice(...a), slice(...b)], 2), [
    ["Q5_0", "Q5_0"],
    Uint32Array.from([...a, ...b]),
  ]);
  assertEquals(outcome(experts, 3), [
    ["Q5_0", "Q5_0", "Q5_0", "Q5_0", "F32", "F32"],
    Uint32Array.from([...a, ...b, 0, 1, 2, 3]),
  ]);
});

Deno.test("experts have equal numbers of slices", () => {
  const slices = [slice(3, 1, 2, 0), slice(), slice()];
  assertThrows(() => outcome(slices, 2), RangeError, "3 slices of 2 experts");
});

Deno.test("weights read from their files have the columns of their model again, one at a time", () => {
  const [rows, cols] = [4, 3];
  const value = (weight: number, row: number, col: number) => 100 * weight + 10 * row + col;
  /** Source columns of the upper and of the lower half of the rows. */
  const order = Uint32Array.of(2, 0, 1, 1, 2, 0);
  const made: number[] = [];
  const device = {
    mapWeight: () => ({ handle: made.push(made.length) - 1, rows, cols }),
    readWeight: ({ handle }: { handle: number }, first: number, count: number) =>
      Float32Array.from({ length: count * cols }, (_, i) => {
        const row = first + Math.floor(i / cols), col = i % cols;
        return value(handle, row, order[(row < 2 ? 0 : cols) + col]!);
      }),
    releaseWeight: ({ handle }: { handle: number }) =>
      void made.splice(made.indexOf(handle), 1, -1),
  };
  const tensor = { name: "w", type: "F32" as const, bytes: 4 * rows * cols };
  const lazy = new LazyWeights(device as unknown as ConstructorParameters<typeof LazyWeights>[0]);
  const parts = [{ tensor }] as unknown as Parameters<LazyWeights["mapWeight"]>[0];
  const weights = [0, 1].map(() => lazy.mapWeight(parts, cols, order));
  assertEquals(weights.map((weight) => [weight.rows, weight.cols]), [[4, 3], [4, 3]]);
  const rowsFrom = (part: object) =>
    lazy.mapWeight(parts.map((slice) => ({ ...slice, ...part })), cols).rows;
  assertEquals([rowsFrom({ firstRow: 1 }), rowsFrom({ firstRow: 1, nRows: 2 })], [3, 2]);
  assertEquals(made, [], "nothing is made before it is read");
  for (const [index, weight] of weights.entries()) {
    for (let first = 0; first < rows; first++) {
      for (let count = 1; first + count <= rows; count++) {
        const expected = Float32Array.from(
          { length: count * cols },
          (_, i) => value(index, first + Math.floor(i / cols), i % cols),
        );
        assertEquals(lazy.readWeight(weight, first, count), expected, `${first} ${count}`);
      }
    }
  }
  assertEquals(made, [-1, 1]);
  lazy.close();
  assertEquals(made, [-1, -1]);
});

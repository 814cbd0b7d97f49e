/** Products for each head, with weights of every type. */
import {
  HALF_PRODUCTS,
  type Matrix,
  matrixOfRows,
  randomByteMatrix,
  rowOf,
} from "../support/matrix.ts";
import { opTest } from "../support/operations.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { computableTypes, randomWeight, type TestWeight } from "../support/weights.ts";
import { products } from "./plain_matmul.ts";

interface HeadCase {
  readonly x: Matrix;
  readonly weight: TestWeight;
  readonly nHeads: number;
}

opTest<HeadCase>("head_matmul", {
  cases: (random) => {
    const shapes = [[1, 1, 5], [1, 4, 16], [3, 2, 7], [9, 16, 3], [40, 3, 33], [2, 70, 4]];
    return [...computableTypes, "F32" as const, "F16" as const].flatMap((type, i) =>
      shapes.filter((_, shape) => (shape + i) % 3 === 0).map(
        ([tokens = 0, nHeads = 0, rows = 0]) => {
          const cols = random.pick([256, 512]);
          const inputs = {
            x: randomByteMatrix(random, tokens, nHeads * cols, 1 / Math.sqrt(cols)),
            weight: randomWeight(random, type, nHeads * rows, cols),
            nHeads,
          };
          return [`${tokens} tokens, ${nHeads} heads, ${type} [${rows}, ${cols}]`, inputs] as const;
        },
      )
    );
  },
  run: (device, { x, weight, nHeads }) =>
    runStep(device, tokenInputs(x.rows), (graph) => ({
      value: graph.recorder.headMatmul(graph.input(x), graph.weight(weight), nHeads),
      cols: weight.rows,
    })),
  plain({ x, weight, nHeads }, read) {
    const values = read(weight);
    const rows = weight.rows / nHeads, { cols } = weight;
    return matrixOfRows(
      x.rows,
      weight.rows,
      (token) =>
        Array.from({ length: nHeads }, (_, head) => {
          const data = values.data.subarray(head * rows * cols, (head + 1) * rows * cols);
          const input = rowOf(x, token).subarray(head * cols, (head + 1) * cols);
          return Array.from(products(input, { rows, cols, data }));
        }).flat(),
    );
  },
  // As for matmul.
  tolerance: { absolute: 4e-6, relative: 4e-6 },
  gpuTolerance: HALF_PRODUCTS,
});

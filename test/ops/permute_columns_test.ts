/** Columns in another order, one for all or one for each expert. */
import { type Matrix, matrixOf, matrixOfRows, randomMatrix, rowOf } from "../support/matrix.ts";
import { opTest } from "../support/operations.ts";
import type { Random } from "../support/random.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { f32Weight } from "../support/weights.ts";

interface PermuteCase {
  readonly x: Matrix;
  readonly cols: number;
  readonly order: Uint32Array<ArrayBuffer>;
  /** Router logits; if missing, there is one order. */
  readonly logits?: Matrix;
  readonly topK: number;
}

function permuteCase(random: Random, rows: number, cols: number): PermuteCase {
  const order = Uint32Array.from(random.permutation(cols));
  return { x: randomMatrix(random, rows, cols), cols, order, topK: 1 };
}

/** @param isShared true if all experts read the same columns */
function expertCase(random: Random, rows: number, cols: number, isShared: boolean): PermuteCase {
  const nExperts = 5, topK = 3;
  return {
    x: randomMatrix(random, rows, isShared ? cols : topK * cols),
    cols,
    order: Uint32Array.from(
      Array.from({ length: nExperts }, () => random.permutation(cols)).flat(),
    ),
    logits: randomMatrix(random, rows, nExperts),
    topK,
  };
}

/** The experts of a token, the best first. */
function chosen({ logits, topK }: PermuteCase, row: number): number[] {
  if (logits === undefined) return [0];
  const scores = rowOf(logits, row);
  return Array.from(scores.keys()).sort((a, b) => scores[b]! - scores[a]!).slice(0, topK);
}

opTest<PermuteCase>("permute_columns", {
  cases: (random) => [
    ["one column", permuteCase(random, 2, 1)],
    ["3 rows of 1100", permuteCase(random, 3, 1100)],
    ["70 rows of 96", permuteCase(random, 70, 96)],
    ["experts of the same columns", expertCase(random, 4, 1030, true)],
    ["experts of columns of their own", expertCase(random, 33, 64, false)],
  ],
  run: (device, inputs) =>
    runStep(device, tokenInputs(inputs.x.rows), (graph) => {
      const { x, cols, order, logits, topK } = inputs;
      const route = logits && graph.recorder.moeRoute(graph.input(logits), {
        topK,
        normalize: true,
      });
      const value = graph.recorder.permuteColumns(
        graph.input(x),
        graph.weight(
          f32Weight(matrixOf(order.length / cols, cols, (row, col) => order[row * cols + col]!)),
        ),
        route,
      );
      return { value, cols: topK * cols };
    }),
  plain: (inputs) => {
    const { x, cols, order, topK } = inputs;
    return matrixOfRows(x.rows, topK * cols, (row) => {
      const from = rowOf(x, row);
      return chosen(inputs, row).flatMap((expert, k) => {
        const first = x.cols === cols ? 0 : k * cols;
        return Array.from(
          order.subarray(expert * cols, (expert + 1) * cols),
          (column) => from[first + column]!,
        );
      });
    });
  },
  tolerance: { absolute: 0, relative: 0 },
});

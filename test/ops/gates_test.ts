/** Gates: products of a value with an activation of another one. */
import type { Activation } from "../../src/backend.ts";
import { type Matrix, matrixOfRows, randomMatrix, rowOf } from "../support/matrix.ts";
import { opTest } from "../support/operations.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { randomWeight, type TestWeight } from "../support/weights.ts";
import { activate } from "./plain_activations.ts";
import { sigmoid } from "./plain_recurrence.ts";

interface GateCase {
  readonly x: Matrix;
  readonly gate: Matrix;
  readonly residual: Matrix | undefined;
}

opTest<GateCase>("sigmoid_gate", {
  cases: (random) =>
    [[1, 1, 1], [3, 33, 33], [5, 64, 1], [2, 100, 4], [40, 48, 48], [7, 96, 3]].flatMap(
      ([rows = 0, cols = 0, gates = 0]) => {
        const x = randomMatrix(random, rows, cols), added = randomMatrix(random, rows, cols);
        const gate = randomMatrix(random, rows, gates, random.pick([1, 20]));
        return [undefined, added].map((residual) =>
          [`${rows} x ${cols} by ${gates}`, { x, gate, residual }] as const
        );
      },
    ),
  run: (device, { x, gate, residual }) =>
    runStep(device, tokenInputs(x.rows), (graph) => ({
      value: graph.recorder.sigmoidGate(
        graph.input(x),
        graph.input(gate),
        residual && graph.input(residual),
      ),
      cols: x.cols,
    })),
  plain: ({ x, gate, residual }) =>
    matrixOfRows(x.rows, x.cols, (row) =>
      Array.from(rowOf(x, row), (value, col) => {
        const by = rowOf(gate, row)[Math.floor(col * gate.cols / x.cols)]!;
        return sigmoid(by) * value + (residual ? rowOf(residual, row)[col]! : 0);
      })),
  tolerance: { absolute: 1e-6, relative: 1e-6 },
});

interface NormCase {
  readonly x: Matrix;
  readonly gate: Matrix;
  readonly weight: TestWeight;
  readonly eps: number;
  readonly activation: Activation;
}

opTest<NormCase>("gated_rms_norm", {
  cases: (random) =>
    [[1, 1, 1], [3, 16, 4], [5, 17, 1], [2, 128, 32], [33, 20, 3], [1, 4096, 1], [3, 24, 5, 5]].map(
      (
        [rows = 0, width = 0, groups = 0, weightRows = 1],
      ) => [`${rows} x ${groups} groups of ${width}`, {
        x: randomMatrix(random, rows, groups * width, random.pick([0.01, 1, 30])),
        gate: randomMatrix(random, rows, groups * width, 3),
        weight: randomWeight(random, random.pick(["F32", "F16", "BF16"]), weightRows, width),
        eps: random.pick([1e-6, 0.1]),
        activation: random.pick(["silu", "gelu_tanh", "identity"] as const),
      }],
    ),
  run: (device, { x, gate, weight, eps, activation }) =>
    runStep(device, tokenInputs(x.rows), (graph) => ({
      value: graph.recorder.gatedRmsNorm(
        graph.input(x),
        graph.input(gate),
        graph.weight(weight),
        { eps, activation },
      ),
      cols: x.cols,
    })),
  plain({ x, gate, weight, eps, activation }, read) {
    const { data: gain, cols: width } = read(weight);
    return matrixOfRows(x.rows, x.cols, (row) => {
      const values = rowOf(x, row);
      return Array.from(values, (value, col) => {
        const begin = col - col % width;
        const squares = values.subarray(begin, begin + width).reduce((sum, v) => sum + v * v, 0);
        const scale = 1 / Math.sqrt(squares / width + Math.fround(eps));
        return value * scale * gain[col % gain.length]! *
          activate(activation, rowOf(gate, row)[col]!);
      });
    });
  },
  tolerance: { absolute: 2e-6, relative: 4e-6 },
  // Activations are rounded to float32 before they multiply.
  referenceTolerance: { absolute: 1e-6, relative: 1e-6 },
});

/** RMSNorm and LayerNorm. */
import { deviceTest } from "../support/devices.ts";
import {
  assertClose,
  type Matrix,
  matrixOf,
  matrixOfRows,
  randomMatrix,
  rowOf,
} from "../support/matrix.ts";
import { opTest } from "../support/operations.ts";
import type { Random } from "../support/random.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { f32Vector, randomWeight, type TestWeight } from "../support/weights.ts";

const shapes = [[1, 1], [1, 7], [3, 16], [5, 33], [2, 64], [70, 100], [4, 257], [2, 4096]] as const;

interface RmsNormCase {
  readonly x: Matrix;
  readonly weight: TestWeight;
  readonly eps: number;
  readonly weightOffset: number;
  readonly residual: Matrix | undefined;
}

function rmsNormCase(
  random: Random,
  rows: number,
  cols: number,
  groups = 1,
  weightRows = 1,
): RmsNormCase {
  return {
    x: randomMatrix(random, rows, cols, random.pick([0.01, 1, 30])),
    weight: randomWeight(random, random.pick(["F32", "F16", "BF16"]), weightRows, cols / groups),
    eps: random.pick([1e-6, 1e-5, 0.1]),
    weightOffset: random.pick([0, 1]),
    residual: random.chance(0.5) ? randomMatrix(random, rows, cols) : undefined,
  };
}

opTest<RmsNormCase>("rms_norm", {
  cases: (random) => [
    ...shapes.map(([rows, cols]) =>
      [`${rows} x ${cols}`, rmsNormCase(random, rows, cols)] as const
    ),
    ...[[3, 48, 3], [2, 1000, 8], [70, 64, 64]].map(([rows = 0, cols = 0, groups = 1]) =>
      [`${rows} x ${cols} in ${groups} groups`, rmsNormCase(random, rows, cols, groups)] as const
    ),
    ["3 x 80 in 5 groups with weights of their own", rmsNormCase(random, 3, 80, 5, 5)],
    // Values whose sum of squares overflows float16 but not float32.
    ["large inputs", {
      x: randomMatrix(random, 3, 50, 1e6),
      weight: f32Vector(random.normals(50)),
      eps: 1e-6,
      weightOffset: 0,
      residual: undefined,
    }],
    ["zeros", {
      x: matrixOf(2, 20, () => 0),
      weight: f32Vector(random.normals(20)),
      eps: 1e-6,
      weightOffset: 1,
      residual: randomMatrix(random, 2, 20),
    }],
  ],
  run: (device, { x, weight, eps, weightOffset, residual }) =>
    runStep(device, tokenInputs(x.rows), (graph) => ({
      value: graph.recorder.rmsNorm(graph.input(x), graph.weight(weight), {
        eps,
        weightOffset,
        residual: residual && graph.input(residual),
      }),
      cols: x.cols,
    })),
  plain({ x, weight, eps, weightOffset, residual }, read) {
    const { data: gain, cols: size } = read(weight);
    // The ABI passes eps as a float32.
    const epsilon = Math.fround(eps);
    return matrixOfRows(x.rows, x.cols, (row) => {
      const values = Array.from(rowOf(x, row));
      return values.map((value, col) => {
        const begin = col - col % size;
        const squares = values.slice(begin, begin + size).reduce((sum, v) => sum + v * v, 0);
        const scale = 1 / Math.sqrt(squares / size + epsilon);
        const before = residual ? rowOf(residual, row)[col]! : 0;
        return value * scale * (gain[col % gain.length]! + weightOffset) + before;
      });
    });
  },
  tolerance: { absolute: 1e-6, relative: 2e-6 },
});

interface LayerNormCase {
  readonly x: Matrix;
  readonly weight: TestWeight;
  readonly bias: TestWeight | undefined;
  readonly eps: number;
}

opTest<LayerNormCase>("layer_norm", {
  cases: (random) =>
    shapes.map(([rows, cols]) => {
      const mean = random.pick([0, 5]);
      return [`${rows} x ${cols}, mean ${mean}`, {
        x: matrixOf(rows, cols, () => mean + random.normal()),
        weight: randomWeight(random, random.pick(["F32", "F16", "BF16"]), 1, cols),
        bias: random.chance(0.5) ? f32Vector(random.normals(cols)) : undefined,
        eps: random.pick([1e-5, 0.1]),
      }];
    }),
  run: (device, { x, weight, bias, eps }) =>
    runStep(device, tokenInputs(x.rows), (graph) => ({
      value: graph.recorder.layerNorm(
        graph.input(x),
        graph.weight(weight),
        graph.optionalWeight(bias),
        eps,
      ),
      cols: x.cols,
    })),
  plain({ x, weight, bias, eps }, read) {
    const gain = read(weight).data;
    const shift = bias && read(bias).data;
    return matrixOfRows(x.rows, x.cols, (row) => {
      const values = Array.from(rowOf(x, row));
      const mean = values.reduce((sum, value) => sum + value, 0) / x.cols;
      const variance = values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.cols;
      const scale = 1 / Math.sqrt(variance + Math.fround(eps));
      return values.map((value, col) => (value - mean) * scale * gain[col]! + (shift?.[col] ?? 0));
    });
  },
  // Subtracting a mean of 5 costs some digits of the rest.
  tolerance: { absolute: 2e-6, relative: 5e-6 },
});

deviceTest("a norm after a norm with a residual, with and without one of its own", async (
  device,
  random,
) => {
  const [rows, cols] = [3, 70];
  const [x, before, added] = [1, 2, 3].map(() => randomMatrix(random, rows, cols));
  const second = f32Vector(random.normals(cols));
  for (const [firstCols, hasResidual] of [[cols, false], [cols, true], [14, false]] as const) {
    const first = f32Vector(random.normals(firstCols));
    const options = [{ eps: 0.5, weightOffset: 0 }, { eps: 1e-5, weightOffset: 1 }] as const;
    // Two steps in place of one, so that no kernel computes both norms.
    const norm = (i: 0 | 1, of: Matrix, weight: TestWeight, residual: Matrix | undefined) =>
      runStep(device, tokenInputs(rows), (graph) => ({
        value: graph.recorder.rmsNorm(graph.input(of), graph.weight(weight), {
          ...options[i],
          residual: residual && graph.input(residual),
        }),
        cols,
      }));
    const last = hasResidual ? added : undefined;
    const expected = await norm(1, await norm(0, x!, first, before), second, last);
    const actual = await runStep(device, tokenInputs(rows), (graph) => {
      const { recorder } = graph;
      const [own, later] = [graph.input(before!), last && graph.input(last)];
      const sum = recorder.rmsNorm(graph.input(x!), graph.weight(first), {
        ...options[0],
        residual: own,
      });
      const value = recorder.rmsNorm(sum, graph.weight(second), {
        ...options[1],
        residual: later,
      });
      return { value, cols };
    });
    assertClose(actual, expected, { absolute: 1e-6, relative: 2e-6 }, `${firstCols} columns`);
  }
});

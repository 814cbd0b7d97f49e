/** Gated units, soft-capping and clamping. */
import { assertEquals } from "@std/assert";
import type { GatedUnit } from "../../src/backend.ts";
import { type Matrix, matrixOf, randomMatrix, rowOf } from "../support/matrix.ts";
import { deviceTest } from "../support/devices.ts";
import type { Random } from "../support/random.ts";
import { opTest } from "../support/operations.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { gatedUnit, gatedUnits } from "./plain_activations.ts";

interface GluCase {
  readonly x: Matrix;
  readonly width: number;
  readonly unit: GatedUnit;
}

/**
 * Returns gates and values. The first result of a row of several is large: the tails of gates that
 * are below 0 have an error of the size of their factors, not of the result.
 */
function gluInputs(random: Random, rows: number, width: number, groups: number): Matrix {
  const isSingle = width * groups === 1;
  const size = random.pick(isSingle ? [0.1, 1] : [0.1, 1, 8]);
  const x = randomMatrix(random, rows, 2 * width * groups, size);
  for (let row = 0; row < rows && !isSingle; row++) {
    rowOf(x, row)[0] = rowOf(x, row)[width] = size;
  }
  return x;
}

opTest<GluCase>("glu", {
  cases: (random) =>
    gatedUnits.flatMap((unit) =>
      [[1, 1, 1], [3, 5, 1], [2, 16, 1], [7, 33, 1], [70, 64, 1], [2, 3000, 1], [5, 7, 3], [
        3,
        32,
        4,
      ]]
        .map(([rows = 0, width = 0, groups = 0]) =>
          [`${unit}, ${rows} rows, ${groups} groups of ${width}`, {
            x: gluInputs(random, rows, width, groups),
            width,
            unit,
          }] as const
        )
    ),
  run: (device, { x, width, unit }) =>
    runStep(device, tokenInputs(x.rows), (graph) => ({
      value: graph.recorder.glu(graph.input(x), width, unit),
      cols: x.cols / 2,
    })),
  plain: ({ x, width, unit }) =>
    matrixOf(x.rows, x.cols / 2, (row, col) => {
      const gate = Math.floor(col / width) * 2 * width + col % width;
      const values = rowOf(x, row);
      return gatedUnit(unit, values[gate]!, values[gate + width]!);
    }),
  tolerance: { absolute: 1e-6, relative: 1e-6 },
});

// One value a row, because the largest entry of a row sets the tolerance of the others; several
// columns, so that whole vectors and a remainder are filled.
const extremes = [0, -0, 1e-30, -1e-30, 1e-4, 5, -5, 20, -20, 90, -90, 1e4, -1e4, 3e38, -3e38];
const extremeCols = 19;

opTest<GluCase>("glu at the ends of float32", {
  cases: () =>
    gatedUnits.map((unit) => [unit, {
      x: matrixOf(
        extremes.length,
        2 * extremeCols,
        (row, col) => col < extremeCols ? extremes[row]! : 1,
      ),
      width: extremeCols,
      unit,
    }]),
  run: (device, { x, width, unit }) =>
    runStep(device, tokenInputs(x.rows), (graph) => ({
      value: graph.recorder.glu(graph.input(x), width, unit),
      cols: width,
    })),
  plain: ({ x, width, unit }) =>
    matrixOf(x.rows, width, (row) => gatedUnit(unit, rowOf(x, row)[0]!, 1)),
  tolerance: { absolute: 1e-7, relative: 2e-6 },
});

opTest<{ readonly x: Matrix; readonly cap: number }>("softcap", {
  cases: (random) => [
    ...[[1, 1], [3, 7], [2, 33], [70, 130], [1, 5000]].map(([rows = 0, cols = 0]) => {
      const cap = random.pick([0.5, 30, 50]);
      return [`${rows} x ${cols} at ${cap}`, {
        x: randomMatrix(random, rows, cols, 40),
        cap,
      }] as const;
    }),
    ["the ends of float32", {
      x: matrixOf(extremes.length, extremeCols, (row) => extremes[row]!),
      cap: 30,
    }],
  ],
  run: (device, { x, cap }) =>
    runStep(device, tokenInputs(x.rows), (graph) => ({
      value: graph.recorder.softcap(graph.input(x), cap),
      cols: x.cols,
    })),
  plain: ({ x, cap }) =>
    matrixOf(x.rows, x.cols, (row, col) => cap * Math.tanh(rowOf(x, row)[col]! / cap)),
  tolerance: { absolute: 1e-6, relative: 1e-6 },
});

opTest<{ readonly x: Matrix; readonly limit: number }>("clamp", {
  cases: (random) => [
    ...[[1, 1], [3, 7], [2, 33], [70, 130], [1, 5000]].map(([rows = 0, cols = 0]) => {
      const limit = random.pick([0.5, 8, 30]);
      return [`${rows} x ${cols} at ${limit}`, {
        x: randomMatrix(random, rows, cols, 40),
        limit,
      }] as const;
    }),
    ["the ends of float32", {
      x: matrixOf(extremes.length, extremeCols, (row) => extremes[row]!),
      limit: 30,
    }],
  ],
  run: (device, { x, limit }) =>
    runStep(device, tokenInputs(x.rows), (graph) => ({
      value: graph.recorder.clamp(graph.input(x), limit),
      cols: x.cols,
    })),
  plain: ({ x, limit }) =>
    matrixOf(x.rows, x.cols, (row, col) => Math.min(Math.max(rowOf(x, row)[col]!, -limit), limit)),
  tolerance: { absolute: 0, relative: 0 },
});

interface XieluCase {
  readonly x: Matrix;
  readonly alphaP: number;
  readonly alphaN: number;
  readonly beta: number;
  readonly eps: number;
}

opTest<XieluCase>("xielu", {
  cases: (random) => [
    // Near 0 the exponential cancels. The largest of a row must not be small by chance.
    ...[[1, 9, 4], [3, 7, 1e-3], [2, 33, 20], [70, 130, 2], [1, 5000, 4]].map(
      ([rows = 0, cols = 0, size]) => {
        const alphaP = 0.1 + 2 * random.uniform(), alphaN = 0.5 + random.uniform();
        const x = randomMatrix(random, rows, cols, size);
        return [`${rows} x ${cols} to ${size}`, {
          x,
          alphaP,
          alphaN,
          beta: 0.5,
          eps: -1e-6,
        }] as const;
      },
    ),
    ["the ends of float32", {
      x: matrixOf(extremes.length, extremeCols, (row) => extremes[row]!),
      alphaP: 0.8,
      alphaN: 0.9,
      beta: 0.5,
      eps: -1e-6,
    }],
  ],
  run: (device, { x, ...numbers }) =>
    runStep(device, tokenInputs(x.rows), (graph) => ({
      value: graph.recorder.xielu(graph.input(x), numbers),
      cols: x.cols,
    })),
  plain: ({ x, alphaP, alphaN, beta, eps }) =>
    matrixOf(x.rows, x.cols, (row, col) => {
      const value = rowOf(x, row)[col]!;
      const bent = value > 0
        ? alphaP * value * value
        : alphaN * (Math.expm1(Math.min(value, eps)) - value);
      return bent + beta * value;
    }),
  tolerance: { absolute: 1e-9, relative: 2e-6 },
});

deviceTest("clamp leaves NaN", async (device) => {
  const x = matrixOf(1, 33, (_, col) => col % 3 === 0 ? NaN : 100);
  const { data } = await runStep(device, tokenInputs(1), (graph) => ({
    value: graph.recorder.clamp(graph.input(x), 8),
    cols: 33,
  }));
  assertEquals([...data], Array.from({ length: 33 }, (_, col) => col % 3 === 0 ? NaN : 8));
});

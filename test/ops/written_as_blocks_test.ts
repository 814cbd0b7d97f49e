/**
 * Values that only products with quantised weights read: devices may store them as signed bytes,
 * unless the values are kept or have other readers. The bits are the same.
 */
import type { Value } from "../../src/backend.ts";
import { deviceTest, isGpu } from "../support/devices.ts";
import {
  assertSameBits,
  type Matrix,
  matrixOfRows,
  randomMatrix,
  rowOf,
} from "../support/matrix.ts";
import type { Random } from "../support/random.ts";
import { type Kept, runStep, type StepGraph, tokenInputs } from "../support/step_graph.ts";
import { f32Vector, randomWeight } from "../support/weights.ts";

const ROWS = 48;
const PAGE_TOKENS = 16;

/** An operation, and the widths of its input and its result. */
interface Producer {
  readonly name: string;
  readonly inputCols: number;
  readonly cols: number;
  readonly record: (graph: StepGraph, x: Value) => Value;
}

function norms(random: Random, cols: number): Producer[] {
  const [scale, bias] = [0, 1].map(() => f32Vector(randomMatrix(random, 1, cols).data));
  return [
    {
      name: `RMSNorm of ${cols}`,
      inputCols: cols,
      cols,
      record: (graph, x) => graph.recorder.rmsNorm(x, graph.weight(scale!), { eps: 1e-5 }),
    },
    {
      name: `LayerNorm of ${cols}`,
      inputCols: cols,
      cols,
      record: (graph, x) =>
        graph.recorder.layerNorm(x, graph.weight(scale!), graph.weight(bias!), 1e-5),
    },
  ];
}

function gatedUnit(cols: number): Producer {
  return {
    name: `a gated unit of ${cols}`,
    inputCols: 2 * cols,
    cols,
    record: ({ recorder }, x) => recorder.glu(x, cols / 2, "silu"),
  };
}

function attention(nHeads: number, headDim: number, nPages: number): Producer {
  return {
    name: `attention of ${nHeads} heads of ${headDim}`,
    inputCols: (nHeads + 2) * headDim,
    cols: nHeads * headDim,
    record(graph, x) {
      const dims = { nKvHeads: 1, kHeadDim: headDim, vHeadDim: headDim };
      const kv = graph.kv({ type: "F16", nPages, pageTokens: PAGE_TOKENS, ...dims });
      const q = graph.recorder.ropeAppend(x, kv, { nHeads, eps: 1e-5, ropeLayout: "half" });
      return graph.recorder.attention(q, kv, { nHeads, scale: headDim ** -0.5 });
    },
  };
}

/** Numbers with some blocks of zeros, and some with an infinity or a NaN. */
function activations(random: Random, rows: number, cols: number): Matrix {
  const matrix = randomMatrix(random, rows, cols);
  for (let row = 0; row < rows; row += 5) matrix.data.fill(0, row * cols, row * cols + cols / 2);
  if (rows > 2) matrix.data[cols + random.int(0, cols - 1)] = Infinity;
  if (rows > 3) matrix.data[2 * cols + random.int(0, cols - 1)] = NaN;
  return matrix;
}

deviceTest("values that only quantised products read", async (device, random) => {
  for (const nTokens of [1, 4, 70]) {
    const nPages = Math.ceil(nTokens / PAGE_TOKENS);
    const inputs = {
      ...tokenInputs(nTokens),
      pageTables: [Int32Array.from({ length: nPages }, (_, i) => i)],
    };
    // GPUs normalize in the products that read an RMSNorm, unless it is kept: other roundings.
    const isFused = (name: string) => isGpu(device) && name.startsWith("RMSNorm");
    const producers = [
      ...norms(random, 96).filter(({ name }) => !isFused(name)),
      ...norms(random, 576).filter(({ name }) => !isFused(name)),
      gatedUnit(192),
      attention(6, 32, nPages),
      attention(4, 48, nPages),
      attention(2, 160, nPages),
    ];
    for (const { name, inputCols, cols, record } of producers) {
      const x = activations(random, nTokens, inputCols);
      const weight = randomWeight(random, random.pick(["Q4_0", "Q8_0"]), ROWS, cols);
      const product = (isKept: boolean) =>
        runStep(device, inputs, (graph) => {
          const read = record(graph, graph.input(x));
          if (isKept) graph.recorder.keep(read);
          return { value: graph.recorder.matmul(read, graph.weight(weight)), cols: ROWS };
        });
      const expected = await product(true);
      assertSameBits(await product(false), expected, `${name}, ${nTokens} tokens`);
      if (nTokens !== 4) continue;

      // Values that are kept, or that others read too.
      const used = (use: (graph: StepGraph, read: Value) => Kept) =>
        runStep(device, inputs, (graph) => use(graph, record(graph, graph.input(x))));
      const alone = await used((_, value) => ({ value, cols }));
      const kept = await used((graph, value) => {
        graph.recorder.matmul(value, graph.weight(weight));
        return { value, cols };
      });
      assertSameBits(kept, alone, `${name}, kept`);
      const both = await used((graph, value) => {
        const { recorder } = graph;
        const multiplied = recorder.matmul(value, graph.weight(weight));
        const pieces = [{ value, width: cols }, { value: multiplied, width: ROWS }];
        return { value: recorder.gatherColumns(pieces, 1), cols: cols + ROWS };
      });
      assertSameBits(
        both,
        matrixOfRows(nTokens, both.cols, (row) => [...rowOf(alone, row), ...rowOf(expected, row)]),
        `${name}, with another reader`,
      );
    }
  }
});

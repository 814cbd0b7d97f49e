/** Low-rank adapters: different ones for the sequences of a run, and several for one. */
import { assertEquals } from "@std/assert";
import type { Activation, Backend } from "../../src/backend.ts";
import { devices, deviceTest } from "../support/devices.ts";
import { assertSameBits, type Matrix, matrixOf, matrixOfRows } from "../support/matrix.ts";
import { randomMatrix, rowOf } from "../support/matrix.ts";
import { opTest } from "../support/operations.ts";
import type { Random } from "../support/random.ts";
import { outputRow, runStep } from "../support/step_graph.ts";
import { f32Weight } from "../support/weights.ts";
import { activate } from "./plain_activations.ts";

/** Ranks of one adapter that add to the same columns. */
interface Segment {
  readonly adapter: number;
  readonly rank: number;
  readonly first: number;
  readonly width: number;
}

interface LoraCase {
  readonly x: Matrix;
  readonly y: Matrix;
  readonly a: Matrix;
  readonly b: Matrix;
  readonly ranks: Matrix;
  /** `[sequences, adapters]` */
  readonly scales: Matrix;
  /** Sequence of each token. */
  readonly sequences: readonly number[];
  readonly activation: Activation;
  readonly alpha: number;
  readonly residual: Matrix | undefined;
  /** Tokens whose rows are outputs; if missing, the rows are those of tokens. */
  readonly outputs?: readonly number[];
  /** Number of blocks of the weight. @default 1 */
  readonly nBlocks?: number;
  /** Blocks of each row. @default all, in order */
  readonly route?: Route;
}

/** Experts chosen for each row, and router logits that choose them in this order. */
interface Route {
  readonly experts: readonly (readonly number[])[];
  readonly logits: Matrix;
}

function randomRoute(random: Random, rows: number, nExperts: number, topK: number): Route {
  const experts = Array.from({ length: rows }, () => {
    const left = Array.from({ length: nExperts }, (_, expert) => expert);
    return Array.from({ length: topK }, () => left.splice(random.int(0, left.length - 1), 1)[0]!);
  });
  const logits = matrixOf(rows, nExperts, (row, expert) => {
    const at = experts[row]!.indexOf(expert);
    return at < 0 ? -1 : topK - at;
  });
  return { experts, logits };
}

function loraCase(
  random: Random,
  nTokens: number,
  [xCols, yCols]: readonly [number, number],
  segments: readonly Segment[],
  rest: Partial<LoraCase> = {},
): LoraCase {
  const ranks = segments.flatMap(({ rank, ...segment }) => Array(rank).fill(segment) as Segment[]);
  const nAdapters = Math.max(...segments.map(({ adapter }) => adapter)) + 1;
  const width = Math.max(...segments.map(({ width }) => width));
  const nSequences = Math.min(4, nTokens);
  return {
    x: randomMatrix(random, nTokens, xCols),
    y: randomMatrix(random, nTokens, yCols),
    a: randomMatrix(random, ranks.length, xCols, 1 / Math.sqrt(xCols)),
    b: randomMatrix(random, ranks.length, width),
    ranks: matrixOfRows(ranks.length, 3, (i) => {
      const { adapter, first, width } = ranks[i]!;
      return [adapter, first, width];
    }),
    // The last sequence uses no adapter.
    scales: matrixOf(
      nSequences,
      nAdapters,
      (sequence) =>
        sequence === nSequences - 1 || random.chance(0.3) ? 0 : random.pick([1, 0.5, -2]),
    ),
    sequences: Array.from({ length: nTokens }, () => random.int(0, nSequences - 1)),
    activation: "identity",
    alpha: 1,
    residual: undefined,
    ...rest,
  };
}

/**
 * A product with blocks. Each block has ranks of its own in `a` and in `b`, unless they are shared;
 * the results of a row have an `x` of their own, unless it is.
 */
function blockCase(
  random: Random,
  nTokens: number,
  [xCols, yCols]: readonly [number, number],
  segments: readonly Segment[],
  { nBlocks, topK, shared = [], ...rest }: {
    readonly nBlocks: number;
    /** Blocks of a row that a route chooses. @default all, without a route */
    readonly topK?: number;
    readonly shared?: readonly ("a" | "b" | "x")[];
  } & Partial<LoraCase>,
): LoraCase {
  const plain = loraCase(random, nTokens, [xCols, yCols], segments);
  const nResults = topK ?? nBlocks;
  const blocks = (name: "a" | "b") => shared.includes(name) ? 1 : nBlocks;
  return {
    ...plain,
    x: randomMatrix(random, nTokens, shared.includes("x") ? xCols : nResults * xCols),
    y: randomMatrix(random, nTokens, nResults * yCols),
    a: randomMatrix(random, blocks("a") * plain.a.rows, xCols, 1 / Math.sqrt(xCols)),
    b: randomMatrix(random, blocks("b") * plain.b.rows, plain.b.cols),
    nBlocks,
    ...(topK === undefined ? {} : { route: randomRoute(random, nTokens, nBlocks, topK) }),
    ...rest,
  };
}

const whole = (adapter: number, rank: number, width: number): Segment => ({
  adapter,
  rank,
  first: 0,
  width,
});

/** Runs the operation for the rows of tokens, or of outputs, whose values are gathered first. */
function run(device: Backend, inputs: LoraCase): Promise<Matrix> {
  const { x, y, a, b, ranks, scales, sequences, activation, alpha, residual, outputs } = inputs;
  const { nBlocks = 1, route } = inputs;
  const tokens = Int32Array.from({ length: x.rows }, (_, i) => i);
  return runStep(
    device,
    {
      tokens,
      positions: tokens,
      sequences,
      pageTables: Array.from({ length: scales.rows }, () => [0]),
      adapterScales: scales.data,
      outputs: (outputs ?? []).map((row) => outputRow(row)),
    },
    (graph) => {
      const { recorder } = graph;
      const rows = (matrix: Matrix) => {
        const value = graph.input(matrix);
        return outputs === undefined ? value : recorder.gatherOutputs(value);
      };
      const value = recorder.lora(rows(y), rows(x), {
        a: graph.weight(f32Weight(a)),
        b: graph.weight(f32Weight(b)),
        ranks: graph.weight(f32Weight(ranks)),
        targets: [],
        nAdapters: scales.cols,
        nBlocks,
      }, {
        activation,
        alpha,
        residual: residual && rows(residual),
        route: route && recorder.moeRoute(rows(route.logits), {
          topK: route.experts[0]!.length,
          normalize: false,
        }),
      });
      return { value, cols: y.cols };
    },
    outputs === undefined ? "tokens" : "outputs",
  );
}

function plain(inputs: LoraCase): Matrix {
  const { x, y, a, b, ranks, scales, sequences, activation, alpha, residual, outputs } = inputs;
  const { nBlocks = 1, route } = inputs;
  const rows = outputs ?? Array.from(sequences.keys());
  const nResults = route === undefined ? nBlocks : route.experts[0]!.length;
  const cols = y.cols / nResults;
  return matrixOfRows(rows.length, y.cols, (i) => {
    const row = rows[i]!;
    const sums = Array.from(rowOf(y, row));
    for (let k = 0; k < nResults; k++) {
      const block = route === undefined ? k : route.experts[row]![k]!;
      const ownX = rowOf(x, row).subarray(x.cols === a.cols ? 0 : k * a.cols).subarray(0, a.cols);
      const rowOfBlock = (matrix: Matrix, rank: number) =>
        rowOf(matrix, matrix.rows === ranks.rows ? rank : block * ranks.rows + rank);
      for (let rank = 0; rank < ranks.rows; rank++) {
        const [adapter, first, width] = rowOf(ranks, rank);
        const scale = rowOf(scales, sequences[row]!)[adapter!]!;
        if (scale === 0) continue;
        const [aRow, bRow] = [rowOfBlock(a, rank), rowOfBlock(b, rank)];
        const product = ownX.reduce((sum, v, c) => sum + v * aRow[c]!, 0);
        for (let c = 0; c < width!; c++) sums[k * cols + first! + c]! += scale * product * bRow[c]!;
      }
    }
    return sums.map((sum, c) =>
      (residual ? rowOf(residual, row)[c]! : 0) + Math.fround(alpha) * activate(activation, sum)
    );
  });
}

opTest<LoraCase>("lora", {
  cases: (random) => [
    ["one number", loraCase(random, 1, [1, 1], [whole(0, 1, 1)])],
    ["one token, 3 adapters", loraCase(random, 1, [70, 33], [0, 1, 2].map((i) => whole(i, 4, 33)))],
    [
      "parts of q, k and v",
      loraCase(random, 9, [64, 600], [
        { adapter: 0, rank: 3, first: 0, width: 300 },
        { adapter: 0, rank: 5, first: 450, width: 150 },
        { adapter: 1, rank: 16, first: 0, width: 600 },
        { adapter: 3, rank: 1, first: 300, width: 77 },
      ]),
    ],
    [
      "few columns of many",
      loraCase(random, 3, [20, 530], [{ adapter: 0, rank: 2, first: 505, width: 25 }]),
    ],
    ["many rows", loraCase(random, 70, [130, 40], [whole(0, 8, 40), whole(1, 2, 40)])],
    ["many ranks", loraCase(random, 5, [16, 9], [whole(0, 250, 9), whole(1, 60, 9)])],
    [
      "an epilogue",
      loraCase(random, 6, [40, 1030], [whole(0, 4, 1030), whole(1, 4, 1030)], {
        activation: "gelu_tanh",
        alpha: 0.25,
        residual: randomMatrix(random, 6, 1030),
      }),
    ],
    [
      "outputs",
      loraCase(random, 11, [32, 50], [whole(0, 2, 50), whole(1, 3, 50)], {
        outputs: [10, 0, 7, 3, 4],
      }),
    ],
    [
      "experts of one x",
      blockCase(random, 9, [40, 300], [
        { adapter: 0, rank: 4, first: 0, width: 150 },
        { adapter: 0, rank: 2, first: 150, width: 150 },
        whole(1, 3, 300),
      ], { nBlocks: 5, topK: 3, shared: ["x"] }),
    ],
    [
      "experts of their own x",
      blockCase(random, 13, [33, 70], [whole(0, 8, 70), whole(1, 1, 70)], { nBlocks: 8, topK: 2 }),
    ],
    [
      "one expert of each row, of outputs, with an epilogue",
      blockCase(random, 6, [20, 30], [whole(0, 2, 30), whole(2, 2, 30)], {
        nBlocks: 3,
        topK: 1,
        outputs: [5, 1, 2],
        activation: "silu",
        alpha: 0.5,
        residual: randomMatrix(random, 6, 30),
      }),
    ],
    [
      "heads that share a",
      blockCase(random, 5, [24, 10], [whole(0, 3, 10), whole(1, 2, 10)], {
        nBlocks: 6,
        shared: ["a"],
      }),
    ],
    [
      "many ranks of heads",
      blockCase(random, 4, [12, 9], [whole(0, 250, 9), whole(1, 60, 9)], { nBlocks: 2 }),
    ],
    [
      "heads that share b",
      blockCase(random, 5, [10, 40], [whole(0, 3, 40), whole(1, 2, 40)], {
        nBlocks: 6,
        shared: ["b"],
      }),
    ],
  ],
  run,
  plain,
  tolerance: { absolute: 4e-6, relative: 4e-6 },
});

deviceTest("the bits of a row do not depend on the adapters of others", async (device, random) => {
  const cols = [96, 130] as const;
  const segments = [whole(0, 8, 130), whole(1, 3, 130), whole(2, 5, 130)];
  // An adapter of infinities that one sequence uses must not spoil the others.
  const drawn = loraCase(random, 13, cols, segments);
  // Each sequence has a row.
  const sequences = drawn.sequences.map((sequence, i) => i < 4 ? i : sequence);
  const inputs = { ...drawn, sequences };
  inputs.b.data.fill(Infinity, 8 * 130, 11 * 130);
  const scales = matrixOf(4, 3, (sequence, adapter) => sequence === adapter ? 1 : 0);
  const together = await run(device, { ...inputs, scales });
  for (const sequence of [0, 2, 3]) {
    const rows = Array.from(inputs.sequences.keys()).filter((i) =>
      inputs.sequences[i] === sequence
    );
    const take = (matrix: Matrix) =>
      matrixOfRows(rows.length, matrix.cols, (i) => rowOf(matrix, rows[i]!));
    const alone = await run(device, {
      ...inputs,
      x: take(inputs.x),
      y: take(inputs.y),
      scales: { rows: 1, cols: 3, data: rowOf(scales, sequence) },
      sequences: rows.map(() => 0),
    });
    assertSameBits(take(together), alone, `sequence ${sequence}`);
    if (sequence === 3) {
      assertEquals(alone.data, take(inputs.y).data, "a row without adapters is y");
    }
  }
}, devices);

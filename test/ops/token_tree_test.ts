/** Trees of tokens: each sees its ancestors and the tokens before the tree, and no other branch. */
import type { Backend, KvCache, KvShape, StepInputs, Value } from "../../src/backend.ts";
import { type Matrix, matrixOf, randomMatrix, rowsOf } from "../support/matrix.ts";
import { opTest } from "../support/operations.ts";
import type { Random } from "../support/random.ts";
import { runStep, type StepGraph, tokenInputs } from "../support/step_graph.ts";
import { attend } from "./plain_attention.ts";

interface Case {
  readonly shape: KvShape;
  readonly nHeads: number;
  readonly window: number | undefined;
  /** Number of tokens before the tree, in sequence 0. */
  readonly nBefore: number;
  /** Row of the token before each token of the tree; -1 for the first one. */
  readonly parents: readonly number[];
  /** A row for each token before the tree, then for those of the tree. */
  readonly rows: Matrix;
}

const SCALE = 0.4, N_KV_HEADS = 2, DIM = 16;

/** [tokens before, tokens of the tree, tokens of a page, window] */
const OUTLINES = [
  [1, 6, 16, 0],
  [7, 9, 4, 0],
  [8, 12, 4, 0],
  [62, 12, 64, 0],
  [300, 16, 16, 0],
  [30, 12, 8, 5],
] as const;

function casesOf(random: Random, nHeads: number): [string, Case][] {
  return OUTLINES.map(([nBefore, nTree, pageTokens, window]) => {
    const parents = Array.from({ length: nTree }, (_, i) => {
      // Half of the tokens continue the token before, so that branches are longer than one.
      return i === 0 || random.chance(0.5) ? i - 1 : random.int(0, i - 1);
    });
    const pagesOfOne = Math.ceil((nBefore + nTree) / pageTokens);
    const isAttention = nHeads > 0;
    const cols = isAttention ? (nHeads + 2 * N_KV_HEADS) * DIM : N_KV_HEADS * DIM;
    const shape: KvShape = {
      type: "F32",
      nPages: pagesOfOne * (nTree + 1),
      pageTokens,
      nKvHeads: N_KV_HEADS,
      kHeadDim: DIM,
      vHeadDim: DIM,
      ...(isAttention ? {} : { valuesInKeys: true }),
    };
    const rows = randomMatrix(random, nBefore + nTree, cols);
    const tree = { shape, nHeads, window: window || undefined, nBefore, parents, rows };
    return [`${nTree} tokens after ${nBefore}`, tree];
  });
}

/** Returns the inputs of a tree's step. Branches get pages, which begin as copies. */
function treeInputs({ shape, nBefore, parents }: Case, kv: KvCache): StepInputs {
  const { pageTokens, nPages } = shape;
  const sequences: number[] = [], positions: number[] = [];
  const perTable = nPages / (parents.length + 1);
  const pageTables = [Array.from({ length: perTable }, (_, page) => page)];
  const hasChild = parents.map(() => false);
  for (const parent of parents) {
    const position = parent < 0 ? nBefore : positions[parent]! + 1;
    positions.push(position);
    if (parent < 0 || !hasChild[parent]) {
      sequences.push(parent < 0 ? 0 : sequences[parent]!);
    } else {
      const shared = Math.floor(position / pageTokens);
      const from = pageTables[sequences[parent]!]!;
      const first = pageTables.length * perTable;
      const own = from.map((page, i) => i < shared ? page : first + i);
      if (position % pageTokens > 0) kv.copyPage(from[shared]!, own[shared]!);
      sequences.push(pageTables.push(own) - 1);
    }
    if (parent >= 0) hasChild[parent] = true;
  }
  return { ...tokenInputs(parents.length), positions, sequences, pageTables, parents };
}

/** Rows that a token of the tree sees: those before the tree, its ancestors and itself. */
function seenRows({ nBefore, parents }: Case, token: number): number[] {
  const path: number[] = [];
  for (let row = token; row >= 0; row = parents[row]!) path.unshift(nBefore + row);
  return [...Array.from({ length: nBefore }, (_, i) => i), ...path];
}

function run(
  device: Backend,
  inputs: Case,
  record: (graph: StepGraph, rows: Value, kv: KvCache) => Value,
  cols: number,
): Promise<Matrix> {
  const { shape, nBefore, parents, rows } = inputs;
  const kv = device.createKv(shape);
  const step = (inputs: StepInputs, rows: Matrix) =>
    runStep(device, inputs, (graph) => ({ value: record(graph, graph.input(rows), kv), cols }));
  const pages = Array.from({ length: Math.ceil(shape.nPages / (parents.length + 1)) }, (_, i) => i);
  const before = { ...tokenInputs(nBefore), pageTables: [pages] };
  return step(before, rowsOf(rows, 0, nBefore))
    .then(() => step(treeInputs(inputs, kv), rowsOf(rows, nBefore, rows.rows)));
}

const N_HEADS = 4;

opTest<Case>("attention of a tree", {
  cases: (random) => casesOf(random, N_HEADS),
  run: (device, inputs) =>
    run(device, inputs, ({ recorder }, qkv, kv) => {
      const options = { nHeads: N_HEADS, eps: 1e-5, weightOffset: 0, ropeLayout: "half" } as const;
      const q = recorder.ropeAppend(qkv, kv, options);
      return recorder.attention(q, kv, { nHeads: N_HEADS, scale: SCALE, window: inputs.window });
    }, N_HEADS * DIM),
  plain: (inputs) => {
    const { parents, nBefore, rows: { data, cols }, window = Infinity } = inputs;
    const head = (row: number, index: number) =>
      data.subarray(row * cols + index * DIM, row * cols + (index + 1) * DIM);
    const outs = parents.map((_, token) => {
      const seen = seenRows(inputs, token).slice(-window);
      return Array.from({ length: N_HEADS }, (_, i) => {
        const kvHead = N_HEADS + Math.floor(i * N_KV_HEADS / N_HEADS);
        return attend(
          head(nBefore + token, i),
          seen.map((row) => head(row, kvHead)),
          seen.map((row) => head(row, kvHead + N_KV_HEADS)),
          DIM,
          { scale: SCALE, softcap: undefined, sink: undefined, biases: seen.map(() => 0) },
        );
      });
    });
    return matrixOf(outs.length, N_HEADS * DIM, (i, col) => {
      return outs[i]![Math.floor(col / DIM)]![col % DIM]!;
    });
  },
  tolerance: { absolute: 1e-5, relative: 1e-5 },
  gpuTolerance: { absolute: 4e-3, relative: 4e-3 },
});

opTest<Case>("previous rows of a tree", {
  cases: (random) => casesOf(random, 0),
  run: (device, inputs) =>
    run(
      device,
      inputs,
      ({ recorder }, x, kv) => recorder.previousRows(x, kv),
      N_KV_HEADS * DIM,
    ),
  plain: (inputs) => {
    const { parents, rows: { data, cols } } = inputs;
    return matrixOf(parents.length, cols, (token, col) => {
      return data[seenRows(inputs, token).at(-2)! * cols + col]!;
    });
  },
  tolerance: { absolute: 0, relative: 0 },
});

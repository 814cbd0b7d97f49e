/** Rotary position embedding, and the norms of queries and keys that precede it. */
import type { KvShape, RopeLayout } from "../../src/backend.ts";
import { type Matrix, matrixOf, matrixOfRows, randomMatrix, rowOf } from "../support/matrix.ts";
import { opTest } from "../support/operations.ts";
import type { Random } from "../support/random.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { f32Vector, type TestWeight } from "../support/weights.ts";
import { normalizeAndRotate } from "./plain_attention.ts";

/** The frequencies of `n` pairs for a base. */
function frequencies(n: number, base: number): Float32Array {
  return Float32Array.from({ length: n }, (_, i) => base ** (-i / n));
}

interface TableCase {
  readonly invFreq: Float32Array;
  readonly scale: number;
  readonly positions: readonly number[];
}

opTest<TableCase>("rope_table", {
  cases: (random) =>
    [1, 3, 16, 40, 64, 128].map((n) => {
      const positions = [0, 1, 2, ...Array.from({ length: 40 }, () => random.int(0, 131071))];
      const invFreq = frequencies(n, random.pick([1e4, 5e5, 1e6]));
      return [`${n} frequencies`, { invFreq, scale: random.pick([1, 1.25]), positions }];
    }),
  run: (device, { invFreq, scale, positions }) =>
    runStep(device, { ...tokenInputs(positions.length), positions }, (graph) => ({
      value: graph.recorder.ropeTable(graph.weight(f32Vector(invFreq)), scale),
      cols: 2 * invFreq.length,
    })),
  plain: ({ invFreq, scale, positions }) =>
    matrixOf(positions.length, 2 * invFreq.length, (row, col) => {
      // The product is a float32, as in training.
      const angle = Math.fround(positions[row]! * invFreq[col % invFreq.length]!);
      return scale * (col < invFreq.length ? Math.cos(angle) : Math.sin(angle));
    }),
  // A sine within two units in the last place below 1, 6e-8 each, times 1.25, and two roundings.
  tolerance: { absolute: 3e-7, relative: 0 },
});

interface RopeCase {
  readonly shape: KvShape;
  readonly nHeads: number;
  readonly qkv: Matrix;
  readonly positions: readonly number[];
  readonly qNorm: Float32Array | undefined;
  readonly weightOffset: number;
  readonly invFreq: Float32Array | undefined;
  readonly ropeLayout: RopeLayout;
}

const eps = 1e-5;

function ropeCase(
  random: Random,
  [headDim, nKvHeads, group]: readonly [headDim: number, nKvHeads: number, group: number],
  valuesInKeys: boolean,
): RopeCase {
  const shape: KvShape = {
    type: "F32",
    nPages: 4,
    pageTokens: 32,
    nKvHeads,
    kHeadDim: headDim,
    vHeadDim: valuesInKeys ? headDim >> 1 : random.pick([headDim, 8]),
    valuesInKeys,
  };
  const nHeads = nKvHeads * group;
  const tokens = random.pick([1, 7, 70]);
  const widths = [headDim, headDim >> 1, headDim >> 2];
  const rotated = random.pick(valuesInKeys ? widths.slice(1) : widths) >> 1;
  const vCols = valuesInKeys ? 0 : shape.vHeadDim * nKvHeads;
  return {
    shape,
    nHeads,
    qkv: randomMatrix(random, tokens, headDim * (nHeads + nKvHeads) + vCols),
    positions: random.permutation(4 * 32).slice(0, tokens),
    qNorm: random.pick([
      undefined,
      random.normals(headDim),
      random.normals(headDim * nHeads),
    ]),
    weightOffset: random.pick([0, 1]),
    invFreq: rotated > 0 && random.chance(0.8) ? frequencies(rotated, 1e4) : undefined,
    ropeLayout: random.pick(["half", "interleaved"]),
  };
}

// attention_test.ts checks the appended keys and values, through attention.
opTest<RopeCase>("rope_append: queries", {
  cases: (random) =>
    [1, 2, 8, 24, 64, 80, 128, 256].flatMap((headDim) =>
      [[1, 1], [1, 8], [2, 3], [3, 2]].map(([nKvHeads = 0, group = 0], i) => {
        const valuesInKeys = headDim > 1 && i % 2 === 1;
        const inputs = ropeCase(random, [headDim, nKvHeads, group], valuesInKeys);
        const { qkv, nHeads, qNorm, invFreq, ropeLayout } = inputs;
        return [
          `${qkv.rows} tokens, ${nHeads} heads of ${headDim}, norm of ${qNorm?.length}, ` +
          `${invFreq?.length} ${ropeLayout} pairs`,
          inputs,
        ];
      })
    ),
  run: (device, inputs) => {
    const { shape, nHeads, qkv, positions, qNorm, weightOffset, invFreq, ropeLayout } = inputs;
    const vector = (values: Float32Array | undefined): TestWeight | undefined =>
      values && f32Vector(values);
    const pages = { positions, pageTables: [[2, 0, 3, 1]] };
    return runStep(device, { ...tokenInputs(qkv.rows), ...pages }, (graph) => {
      const frequencies = graph.optionalWeight(vector(invFreq));
      const value = graph.recorder.ropeAppend(graph.input(qkv), graph.kv(shape), {
        nHeads,
        qNorm: graph.optionalWeight(vector(qNorm)),
        eps,
        weightOffset,
        rope: frequencies && graph.recorder.ropeTable(frequencies, 1),
        ropeLayout,
      });
      return { value, cols: nHeads * shape.kHeadDim };
    });
  },
  plain: ({ shape, nHeads, qkv, positions, qNorm, weightOffset, invFreq, ropeLayout }) =>
    matrixOfRows(
      qkv.rows,
      nHeads * shape.kHeadDim,
      (row) =>
        normalizeAndRotate(rowOf(qkv, row).subarray(0, nHeads * shape.kHeadDim), {
          headDim: shape.kHeadDim,
          position: positions[row]!,
          norm: qNorm,
          eps,
          weightOffset,
          invFreq,
          ropeLayout,
          rotatesEnd: shape.valuesInKeys,
        }),
    ),
  tolerance: { absolute: 2e-6, relative: 2e-6 },
});

/**
 * Tokens of one run that see what others of it append, and tokens that do not, give the bits of
 * runs of one token each. On GPUs the first are appended before attention, the others by it.
 */
import type { Backend, Step, Value } from "../../src/backend.ts";
import { deviceTest } from "../support/devices.ts";
import {
  assertSameBits,
  type Matrix,
  matrixOfRows,
  randomMatrix,
  rowOf,
} from "../support/matrix.ts";
import { StepGraph } from "../support/step_graph.ts";
import { f32Vector } from "../support/weights.ts";

const N_HEADS = 4, N_KV_HEADS = 2, DIM = 64, PAGE_TOKENS = 8, N_ROWS = 64;
const COLS = N_HEADS * DIM;

/** A token: the row of its queries, keys and values, its sequence and position. */
type Token = readonly [row: number, sequence: number, position: number];

const PAGE_TABLES = [
  [0, 1],
  [2, 3],
  // Shares the first page of sequence 0.
  [0, 4],
];

/** A step of attention, with pages of its own. */
interface Attention {
  readonly step: Step;
  readonly out: Value;
}

/** The results of a run of some tokens. */
async function runTokens({ step, out }: Attention, tokens: readonly Token[]): Promise<Matrix> {
  await step.run({
    tokens: tokens.map(([row]) => row),
    positions: tokens.map(([, , position]) => position),
    sequences: tokens.map(([, sequence]) => sequence),
    pageTables: PAGE_TABLES,
    outputs: [],
  });
  const data = new Float32Array(step.read(out, COLS, 0, tokens.length));
  return { rows: tokens.length, cols: COLS, data };
}

/** Tokens before, in runs of one sequence each, then the run. */
const CASES: readonly (readonly [name: string, before: readonly Token[], run: readonly Token[]])[] =
  [
    ["tokens of several sequences", [[0, 0, 0], [1, 1, 0], [2, 1, 1]], [[3, 0, 1], [4, 1, 2]]],
    ["a token at position 0", [], [[5, 1, 0]]],
    ["tokens of one sequence, apart", [[0, 0, 0], [1, 1, 0]], [[3, 0, 1], [4, 1, 1], [5, 0, 2]]],
    ["a token of a page that another one sees", [[0, 0, 0]], [[3, 0, 1], [4, 2, 2]]],
    ["a token that another one sees from a later page", [
      ...Array.from({ length: 7 }, (_, i): Token => [i, 0, i]),
    ], [[7, 0, 7], [8, 2, 8]]],
  ];

for (const type of ["F16", "Q8_0"] as const) {
  deviceTest(`tokens give the bits of runs of one token over ${type}`, async (device, random) => {
    const rows = randomMatrix(random, N_ROWS, (N_HEADS + 2 * N_KV_HEADS) * DIM);
    const frequencies = f32Vector(random.normals(DIM / 2));
    const open = async (backend: Backend): Promise<Attention> => {
      const limits = { maxTokens: 8, maxOutputs: 1, maxSequences: 3, maxPages: 2 };
      const graph = new StepGraph(backend, backend.record(limits));
      const { recorder } = graph;
      const kv = graph.kv({
        ...{ type, nPages: 5, pageTokens: PAGE_TOKENS },
        ...{ nKvHeads: N_KV_HEADS, kHeadDim: DIM, vHeadDim: DIM },
      });
      const rope = recorder.ropeTable(graph.weight(frequencies), 1);
      const options = { nHeads: N_HEADS, eps: 1e-5, rope, ropeLayout: "half" } as const;
      const q = recorder.ropeAppend(graph.input(rows), kv, options);
      const out = recorder.attention(q, kv, { nHeads: N_HEADS, scale: DIM ** -0.5 });
      recorder.keep(out);
      return { step: await recorder.finish(), out };
    };
    for (const [name, before, tokens] of CASES) {
      const alone = await open(device), together = await open(device);
      for (const token of before) await runTokens(alone, [token]);
      const expected: Matrix[] = [];
      for (const token of tokens) expected.push(await runTokens(alone, [token]));
      for (const token of before) await runTokens(together, [token]);
      assertSameBits(
        await runTokens(together, tokens),
        matrixOfRows(tokens.length, COLS, (row) => rowOf(expected[row]!, 0)),
        name,
      );
      alone.step.release();
      together.step.release();
    }
  });
}

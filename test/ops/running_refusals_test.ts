/** Invalid inputs of a run are refused before anything runs. */
import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import type { Backend, SamplingParams, Step, StepInputs, Value } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import { deviceTest } from "../support/devices.ts";
import { matrixOf, randomMatrix } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { greedy, outputRow, StepGraph } from "../support/step_graph.ts";
import { f32Weight } from "../support/weights.ts";

const vocabulary = 40;

const limits = { maxTokens: 6, maxOutputs: 3, maxSequences: 2, maxPages: 3 };

/** A step with an embedding, a cache of 5 pages of 4 tokens, and sampling. */
async function recordStep(device: Backend): Promise<{ readonly step: Step; readonly kept: Value }> {
  const graph = new StepGraph(device, device.record(limits));
  const kv = graph.kv({
    type: "F32",
    nPages: 5,
    pageTokens: 4,
    nKvHeads: 1,
    kHeadDim: 4,
    vHeadDim: 4,
  });
  const { recorder } = graph;
  const qkv = graph.input(randomMatrix(new Random("embedding"), vocabulary, 16));
  const q = recorder.ropeAppend(qkv, kv, { nHeads: 2, eps: 1e-5, ropeLayout: "half" });
  const attended = recorder.attention(q, kv, { nHeads: 2, scale: 1, masked: true });
  const kept = recorder.gatherOutputs(attended);
  recorder.keep(kept);
  recorder.sample(kept, 2);
  return { step: await recorder.finish(), kept };
}

/** Valid inputs. */
const good: StepInputs = {
  tokens: [3, 39, 0],
  positions: [0, 1, 11],
  sequences: [0, 0, 1],
  pageTables: [[4], [0, 1, 2]],
  outputs: [outputRow(2), outputRow(0)],
};

/** Valid inputs with other sampling options for one output. */
function sampled(change: Partial<SamplingParams>): Partial<StepInputs> {
  return { outputs: [outputRow(0), outputRow(1, { sampling: { ...greedy, ...change } })] };
}

/** An attention mask whose last number is `last`. */
function attentionMask(nHeads: number, nPositions: number, last = 0): Partial<StepInputs> {
  const values = new Float32Array(3 * nHeads * nPositions);
  values[values.length - 1] = last;
  return { attentionMask: { nHeads, nPositions, values } };
}

/** Tokens after the first are of the second sequence. */
function branches(positions: number[], parents: number[]): Partial<StepInputs> {
  return { sequences: [0, 1, 1], positions, parents };
}

const seven = { tokens: [0, 1, 2, 3, 4, 5, 6], positions: [0, 1, 2, 3, 4, 5, 6] };
const maskOf = (words: number) => ({ mask: new Uint32Array(words).fill(1) });

const refusals: readonly (readonly [message: string, change: Partial<StepInputs>])[] = [
  ["tokens[1] is 40; valid is 0 to 39", { tokens: [3, 40, 0] }],
  ["tokens[0] is -1; valid is 0 to 39", { tokens: [-1, 0, 0] }],
  ["positions[2] is 12; valid is 0 to 11", { positions: [0, 1, 12] }],
  ["positions[0] is -1", { positions: [-1, 1, 2] }],
  ["positions[0] is 4; valid is 0 to 3", { positions: [4, 0, 0], pageTables: [[4], [0]] }],
  ["sequences[1] is 2; valid is 0 to 1", { sequences: [0, 2, 1] }],
  ["sequences[1] is -1", { sequences: [0, -1, 1] }],
  ["page_tables[0] is 5; valid is 0 to 4", { pageTables: [[5], [0, 1, 2]] }],
  ["page_tables[5] is -1", { pageTables: [[4], [0, 1, -1]] }],
  ["key_lengths[1] is 13; valid is 0 to 12", { keyLengths: [1, 13] }],
  ["key_lengths[0] is -1", { keyLengths: [-1, 1] }],
  ["attention_mask_heads is 3; valid is 1 or 2", attentionMask(3, 12)],
  ["attention_mask_cols is 13; valid is 1 to 12", attentionMask(1, 13)],
  ["attention_mask_cols is 11; token 2 sees 12 positions", attentionMask(1, 11)],
  ["attention_mask_cols is 11; token 2 sees 12 positions", {
    ...attentionMask(1, 11),
    positions: [0, 1, 2],
    keyLengths: [2, 12],
  }],
  ["an attention mask has nan", attentionMask(2, 12, NaN)],
  ["an attention mask has inf", attentionMask(2, 12, Infinity)],
  ["output_rows[0] is 3; valid is 0 to 2", { outputs: [outputRow(3)] }],
  ["output_rows[0] is -1", { outputs: [outputRow(-1)] }],
  ["n_tokens is 7; the step allows 6", { ...seven, sequences: [0, 0, 0, 0, 0, 0, 0] }],
  ["n_outputs is 4; the step allows 3", { outputs: [0, 0, 1, 2].map((row) => outputRow(row)) }],
  ["n_sequences is 3; the step allows 2", { pageTables: [[0], [1], [2]] }],
  ["n_pages is 4; the step allows 3", { pageTables: [[0], [1, 2, 3, 4]] }],
  ["a run needs a token", { tokens: [], positions: [], sequences: [], outputs: [] }],
  ["got 2 positions and 3 sequences", { positions: [0, 1] }],
  ["got 3 positions and 1 sequences", { sequences: [0] }],
  ["temperature is -1", sampled({ temperature: -1 })],
  ["temperature is nan", sampled({ temperature: NaN })],
  ["temperature is inf", sampled({ temperature: Infinity })],
  ["top_p is 1.5", sampled({ topP: 1.5 })],
  ["top_p is -0.5", sampled({ topP: -0.5 })],
  ["top_p is nan", sampled({ topP: NaN })],
  ["min_p is 2", sampled({ minP: 2 })],
  ["min_p is -0.5", sampled({ minP: -0.5 })],
  ["min_p is nan", sampled({ minP: NaN })],
  ["repeat_penalty is 0", sampled({ repeatPenalty: 0 })],
  ["repeat_penalty is -1", sampled({ repeatPenalty: -1 })],
  ["repeat_penalty is nan", sampled({ repeatPenalty: NaN })],
  ["repeat_penalty is inf", sampled({ repeatPenalty: Infinity })],
  ["a penalty is not finite", sampled({ presencePenalty: NaN })],
  ["a penalty is not finite", sampled({ frequencyPenalty: Infinity })],
  ["history[1] is 8; valid is 0 to 7", { outputs: [outputRow(0, { history: [7, 8] })] }],
  ["history[0] is -1", { outputs: [outputRow(0, { history: [-1] })] }],
  ["bias_ids[0] is 8", sampled({ bias: new Map([[8, 1]]) })],
  ["bias_ids[0] is -3", sampled({ bias: new Map([[-3, 1]]) })],
  ["a bias value is nan", sampled({ bias: new Map([[1, NaN]]) })],
  ["a bias value is inf", sampled({ bias: new Map([[1, Infinity]]) })],
  ["mask_words is 2; expected 0 or 1", sampled(maskOf(2))],
  ["masks of 0 words", sampled(maskOf(0))],
  ["masks of one step have 1 and 2 words", {
    outputs: [1, 2].map((words) => outputRow(0, { sampling: { ...greedy, ...maskOf(words) } })),
  }],
  ["forced_token is 8 of 8", { outputs: [outputRow(0, { forcedToken: 8 })] }],
  ["parents[1] is 1; valid is -1, or a row before it", branches([0, 1, 2], [-1, 1, 0])],
  ["parents[2] is at position 0, the token at 2", branches([0, 1, 2], [-1, 0, 0])],
  ["sequence 1 begins two branches", branches([0, 1, 1], [-1, 0, 0])],
  ["n_top is 3; the step reports 2", { outputs: [outputRow(0, { nTop: 3 })] }],
];

deviceTest("inputs out of range", async (device) => {
  const { step, kept } = await recordStep(device);
  await step.run(good);
  const before = step.read(kept, 8, 0, 2);
  for (const [message, change] of refusals) {
    await assertRejects(() => step.run({ ...good, ...change }), ForgeError, message);
  }
  // The step still works.
  assertEquals((await step.run(good)).length, 2);
  assertEquals(step.read(kept, 8, 0, 2), before);
  step.release();
});

deviceTest("scales of adapters", async (device) => {
  const graph = new StepGraph(device, device.record({ ...limits, maxPages: 1 }));
  const { recorder } = graph;
  const x = graph.input(randomMatrix(new Random("adapters"), 4, 8));
  const matrix = graph.weight(f32Weight(matrixOf(1, 8, () => 1)));
  const ranks = graph.weight(f32Weight(matrixOf(1, 3, (_, col) => [1, 0, 8][col]!)));
  recorder.keep(recorder.lora(x, x, { a: matrix, b: matrix, ranks, targets: [], nAdapters: 2 }));
  const step = await recorder.finish();
  const inputs = { tokens: [0], positions: [0], sequences: [0], pageTables: [[0]], outputs: [] };
  await step.run({ ...inputs, adapterScales: [0, 2] });
  const refused = (adapterScales: number[], message: string) =>
    assertRejects(() => step.run({ ...inputs, adapterScales }), ForgeError, message);
  await refused([], "n_adapters is 0; the step has 2");
  await refused([1, 2, 3], "n_adapters is 3; the step has 2");
  await refused([1, NaN], "an adapter scale is nan");
  await refused([Infinity, 0], "an adapter scale is inf");
  step.release();
});

deviceTest("the values of a run that can be read", async (device) => {
  const { step, kept } = await recordStep(device);
  assertThrows(() => step.read(kept, 8, 0, 1), ForgeError, "of the 0 of the last run");
  await step.run(good);
  assertEquals(step.read(kept, 8, 0, 2).length, 16);
  assertEquals(step.read(kept, 8, 2, 0).length, 0);
  assertEquals(step.read(kept, 8, 1, 1), step.read(kept, 8, 0, 2).subarray(8));
  assertThrows(() => step.read(kept, 8, 0, 3), ForgeError, "of the 2 of the last run");
  assertThrows(() => step.read(kept, 8, 3, 0), ForgeError, "of the 2 of the last run");
  assertThrows(() => step.read(kept, 4, 0, 2), ForgeError, "too small for 2 rows of 8");
  const earlier = (kept - 1) as Value;
  assertThrows(() => step.read(earlier, 8, 0, 1), ForgeError, "was not kept");
  assertThrows(() => step.read(99 as Value, 8, 0, 1), ForgeError, "was not kept");
  // A refused run keeps the results of the previous one.
  const before = step.read(kept, 8, 0, 2);
  await assertRejects(() => step.run({ ...good, outputs: [outputRow(9)] }), ForgeError);
  assertEquals(step.read(kept, 8, 0, 2), before);
  step.release();
});

deviceTest("cancelling while nothing runs stops no later run", async (device) => {
  const { step } = await recordStep(device);
  step.cancel();
  assertEquals((await step.run(good)).length, 2);
  step.release();
});

deviceTest("a run that overlaps another of the same step", async (device) => {
  const { step } = await recordStep(device);
  const first = step.run(good);
  await assertRejects(() => step.run(good), ForgeError, "already running");
  assertEquals((await first).length, 2);
  step.release();
});

deviceTest("token ids are those of the smallest of several embeddings", async (device, random) => {
  const graph = new StepGraph(device, device.record({ ...limits, maxPages: 1 }));
  for (const rows of [40, 30, 35]) graph.recorder.keep(graph.input(randomMatrix(random, rows, 8)));
  const step = await graph.recorder.finish();
  const run = (token: number, position = 0) => {
    const one = { positions: [position], sequences: [0], pageTables: [[0]], outputs: [] };
    return step.run({ tokens: [token], ...one });
  };
  await run(29);
  await assertRejects(() => run(30), ForgeError, "tokens[0] is 30; valid is 0 to 29");
  // Without a cache, any position from 0 on is valid.
  await run(0, 2 ** 31 - 2);
  await assertRejects(() => run(0, -1), ForgeError, "positions[0] is -1; valid is 0 to 2147483646");
  step.release();
});

deviceTest("pages, slots and positions are those of the smallest of several tables", async (
  device,
  random,
) => {
  const graph = new StepGraph(device, device.record({ ...limits, maxPages: 1 }));
  const { recorder } = graph;
  let x = graph.input(randomMatrix(random, 4, 16));
  const taps = graph.weight(f32Weight(randomMatrix(random, 16, 4)));
  for (const n of [5, 3, 4]) {
    const shape = { type: "F32", pageTokens: 16, nKvHeads: 1, kHeadDim: 4, vHeadDim: 4 } as const;
    const kv = graph.kv({ ...shape, nPages: n });
    recorder.keep(recorder.ropeAppend(x, kv, { nHeads: 2, eps: 1e-5, ropeLayout: "half" }));
    const state = device.createState({ nSlots: n, rows: 3, cols: 16 });
    recorder.keep(recorder.causalConv1d(x, taps, state, { activation: "silu" }));
    x = recorder.addEmbedding(x, graph.weight(f32Weight(randomMatrix(random, n, 16))));
  }
  recorder.keep(x);
  const step = await recorder.finish();
  const run = (page: number, slot: number, position: number) =>
    step.run({
      tokens: [0],
      positions: [position],
      sequences: [0],
      pageTables: [[page]],
      slots: [slot],
      outputs: [],
    });
  await run(2, 2, 2);
  await assertRejects(() => run(3, 2, 2), ForgeError, "page_tables[0] is 3; valid is 0 to 2");
  await assertRejects(() => run(2, 3, 2), ForgeError, "slots[0] is 3; valid is 0 to 2");
  await assertRejects(() => run(2, 2, 3), ForgeError, "positions[0] is 3; valid is 0 to 2");
  step.release();
});

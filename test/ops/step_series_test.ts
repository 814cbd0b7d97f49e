/** Runs of several steps give the results of single steps. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import type { Backend, OutputRequest, Step, StepInputs, StepResult } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import { deviceTest } from "../support/devices.ts";
import { type Matrix, randomMatrix } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { greedy, outputRow, StepGraph } from "../support/step_graph.ts";
import { f32Weight } from "../support/weights.ts";

const VOCABULARY = 60, HEAD_DIM = 8, PAGE_TOKENS = 4, MAX_PAGES = 4, MAX_TOP = 2;
const MAX_SEQUENCES = 3, ROUNDS = 6;

/** A step with a cache and a rotation: its choices depend on all earlier tokens and positions. */
async function recordStep(
  device: Backend,
  random: Random,
  head: Matrix,
  { causal = true, samples = true, masked = false } = {},
): Promise<Step> {
  const limits = {
    maxTokens: 8,
    maxOutputs: MAX_SEQUENCES,
    maxSequences: MAX_SEQUENCES,
    maxPages: MAX_PAGES,
  };
  const graph = new StepGraph(device, device.record(limits));
  const { recorder } = graph;
  const kv = graph.kv({
    type: "F32",
    nPages: MAX_SEQUENCES * MAX_PAGES,
    pageTokens: PAGE_TOKENS,
    nKvHeads: 1,
    kHeadDim: HEAD_DIM,
    vHeadDim: HEAD_DIM,
  });
  const frequencies = { rows: 1, cols: HEAD_DIM / 2, data: Float32Array.of(1, 0.5, 0.2, 0.1) };
  const qkv = graph.input(randomMatrix(random, VOCABULARY, 3 * HEAD_DIM));
  const q = recorder.ropeAppend(qkv, kv, {
    nHeads: 1,
    eps: 1e-5,
    rope: recorder.ropeTable(graph.weight(f32Weight(frequencies)), 1),
    ropeLayout: "half",
  });
  const options = { nHeads: 1, scale: 1, masked };
  // Attention that is not causal matters also if causal attention follows.
  if (!causal) recorder.keep(recorder.attention(q, kv, { ...options, causal }));
  const rows = recorder.gatherOutputs(recorder.attention(q, kv, options));
  const logits = recorder.matmul(rows, graph.weight(f32Weight(head)));
  if (samples) recorder.sample(logits, MAX_TOP);
  return await recorder.finish();
}

/** One sequence and its sampling options. */
interface Spec {
  readonly token: number;
  readonly position: number;
  readonly request: OutputRequest;
}

function randomSpec(random: Random, row: number): Spec {
  const historySize = random.pick([0, 1, 3, 100]);
  const history = Array.from(
    { length: random.int(0, Math.min(5, historySize)) },
    () => random.int(0, VOCABULARY - 1),
  );
  const request = outputRow(row, {
    sampling: {
      ...greedy,
      temperature: random.pick([0, 0.7, 3]),
      topK: random.pick([0, 5]),
      topP: random.pick([1, 0.8]),
      repeatPenalty: random.pick([1, 1.7]),
      frequencyPenalty: random.pick([0, 0.6]),
      bias: random.chance(0.3) ? new Map([[random.int(0, VOCABULARY - 1), 1.5]]) : undefined,
      seed: BigInt(random.int(0, 9)),
    },
    history,
    historySize,
    stream: random.int(0, 3),
    position: random.int(0, 100),
    nTop: random.int(0, MAX_TOP),
  });
  return { token: random.int(0, VOCABULARY - 1), position: random.int(0, 3), request };
}

function inputsOf(specs: readonly Spec[]): StepInputs {
  return {
    tokens: specs.map(({ token }) => token),
    positions: specs.map(({ position }) => position),
    sequences: specs.map((_, sequence) => sequence),
    pageTables: specs.map((_, sequence) =>
      Array.from({ length: MAX_PAGES }, (_, page) => sequence + MAX_SEQUENCES * page)
    ),
    outputs: specs.map(({ request }) => request),
  };
}

/** The tokens before the first one of each sequence. */
async function prefill(step: Step, specs: readonly Spec[]): Promise<void> {
  const { pageTables } = inputsOf(specs);
  for (const [sequence, { position }] of specs.entries()) {
    for (let at = 0; at < position; at++) {
      const place = { tokens: [at], positions: [at], sequences: [0] };
      await step.run({ ...place, pageTables: [pageTables[sequence]!], outputs: [] });
    }
  }
}

/** The spec of the step after the one that chose a token. */
function following({ position, request }: Spec, token: number): Spec {
  const { historySize = 0 } = request;
  const history = [...Array.from(request.history), token].slice(-historySize || Infinity);
  return {
    token,
    position: position + 1,
    request: {
      ...request,
      history: historySize === 0 ? [] : history,
      position: request.position + 1,
    },
  };
}

/** The results of single steps, until one of the tokens ends it. */
async function stepByStep(
  step: Step,
  first: readonly Spec[],
  nSteps: number,
  endTokens: readonly number[],
): Promise<StepResult[]> {
  const results: StepResult[] = [];
  let specs = first;
  for (let i = 0; i < nSteps; i++) {
    const chosen = await step.run(inputsOf(specs));
    results.push(...chosen);
    const tokens = chosen.map((result) => result instanceof ForgeError ? -1 : result.token);
    if (tokens.some((token) => token < 0 || endTokens.includes(token))) break;
    specs = specs.map((spec, sequence) => following(spec, tokens[sequence]!));
  }
  return results;
}

deviceTest("a run of several steps chooses what single steps choose", async (device) => {
  const random = new Random("step series");
  const step = await recordStep(device, random, randomMatrix(random, VOCABULARY, HEAD_DIM));
  let ended = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const nSequences = random.int(1, MAX_SEQUENCES);
    const specs = Array.from({ length: nSequences }, (_, row) => randomSpec(random, row));
    const nSteps = random.int(1, 7);
    const endTokens = Array.from({ length: random.pick([0, 4]) }, () => random.int(0, 59));
    await prefill(step, specs);
    const expected = await stepByStep(step, specs, nSteps, endTokens);
    const actual = await step.run({ ...inputsOf(specs), nSteps, endTokens });
    assertEquals(actual, expected, `${nSteps} steps, ended by ${endTokens}`);
    if (actual.length < nSteps * nSequences) ended++;
  }
  assert(ended < ROUNDS);
  step.release();
});

deviceTest("penalties of several steps cover as many tokens as those of single steps", async (
  device,
) => {
  const random = new Random("windows of a step series");
  const step = await recordStep(device, random, randomMatrix(random, VOCABULARY, HEAD_DIM));
  // Each token in the window of a sequence is as good as banned.
  const specs = [1, 2, 3].map((historySize, row): Spec => ({
    token: row,
    position: 0,
    request: outputRow(row, { sampling: { ...greedy, presencePenalty: 100 }, historySize }),
  }));
  const expected = await stepByStep(step, specs, 7, []);
  // A GPU records a graph of several steps when a plan is used again.
  for (let run = 0; run < 4; run++) {
    assertEquals(await step.run({ ...inputsOf(specs), nSteps: 7 }), expected);
  }
  step.release();
});

deviceTest("a run of several steps ends if no token can be chosen", async (device) => {
  const random = new Random("broken step series");
  const head = randomMatrix(random, VOCABULARY, HEAD_DIM);
  head.data[3] = NaN;
  const broken = await recordStep(device, random, head);
  const specs = [0, 1].map((row) => ({ token: 5, position: 0, request: outputRow(row) }));
  const failed = await broken.run({ ...inputsOf(specs), nSteps: 5 });
  assertEquals(failed.map((result) => result instanceof ForgeError), [true, true]);
  broken.release();
});

deviceTest("invalid runs of several steps are rejected", async (device) => {
  const random = new Random("step series refusals");
  const head = randomMatrix(random, VOCABULARY, HEAD_DIM);
  const step = await recordStep(device, random, head, { masked: true });
  const specs = [0, 1].map((row) => ({ token: row, position: 0, request: outputRow(row) }));
  const good: StepInputs = { ...inputsOf(specs), nSteps: 3 };
  const mask = new Uint32Array(2).fill(1);
  const refusals: readonly (readonly [message: string, change: Partial<StepInputs>])[] = [
    ["n_steps is 0; valid is 1 to 1024", { nSteps: 0 }],
    ["n_steps is 1025; valid is 1 to 1024", { nSteps: 1025 }],
    ["they got 2, 2 and 1", { outputs: [outputRow(0)] }],
    ["they got 3, 2 and 2", { tokens: [0, 1, 2], positions: [0, 0, 0], sequences: [0, 1, 1] }],
    ["sequence 0 and output 0 for token 0", { sequences: [1, 0] }],
    ["sequence 0 and output 0 for token 0", { outputs: [outputRow(1), outputRow(0)] }],
    ["3 steps from position 14; there are 16", { positions: [0, 14] }],
    ["several steps take no masks", {
      outputs: [outputRow(0), outputRow(1, { sampling: { ...greedy, mask } })],
    }],
    ["several steps take no forced tokens", {
      outputs: [outputRow(0), outputRow(1, { forcedToken: 1 })],
    }],
    ["several steps take no masks", {
      attentionMask: { nHeads: 1, nPositions: 16, values: new Float32Array(32) },
    }],
    ["several steps take no parents", { parents: [-1, -1] }],
  ];
  for (const [message, change] of refusals) {
    await assertRejects(() => step.run({ ...good, ...change }), ForgeError, message);
  }
  assertEquals((await step.run(good)).length, 6);
  assertEquals((await step.run({ ...good, positions: [0, 13] })).length, 6);
  step.release();
});

deviceTest("several steps need causal attention and a choice of tokens", async (device) => {
  const specs = [{ token: 1, position: 0, request: outputRow(0) }];
  const refusals = [
    ["several steps need causal attention", { causal: false }],
    ["n_steps is 2 for a step that chooses no tokens", { samples: false }],
  ] as const;
  for (const [message, options] of refusals) {
    const random = new Random("steps that run once");
    const head = randomMatrix(random, VOCABULARY, HEAD_DIM);
    const step = await recordStep(device, random, head, options);
    await step.run(inputsOf(specs));
    await assertRejects(() => step.run({ ...inputsOf(specs), nSteps: 2 }), ForgeError, message);
    step.release();
  }
});

/** Repeated runs of a step: with larger inputs, after a failed run, on large weights. */
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import type { Backend, Step, StepInputs, Value } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import { devices, deviceTest } from "../support/devices.ts";
import { LogitSampler, type SampleRequest } from "../support/logit_sampler.ts";
import { assertSameBits, type Matrix, matrixOfRows, randomMatrix } from "../support/matrix.ts";
import type { Random } from "../support/random.ts";
import {
  type Kept,
  limitsOf,
  outputRow,
  runStep,
  StepGraph,
  tokenInputs,
} from "../support/step_graph.ts";
import { f32Weight, randomWeight, type TestWeight } from "../support/weights.ts";

deviceTest("a run gives the same result after one with larger inputs", async (
  device,
  random,
) => {
  const vocabulary = 700;
  const logits = randomMatrix(random, 1, vocabulary);
  const ids = (count: number) => Array.from({ length: count }, () => random.int(0, vocabulary - 1));
  const mask = () => Uint32Array.from({ length: Math.ceil(vocabulary / 32) }, () => random.u32());
  const penalised = (count: number): SampleRequest => ({
    history: ids(count),
    sampling: { repeatPenalty: 1.7, presencePenalty: 0.3 },
  });
  const biased = (count: number): SampleRequest => ({
    sampling: {
      bias: new Map(
        random.permutation(vocabulary).slice(0, count).map((id) => [id, random.normal(4)]),
      ),
    },
  });
  const masked = (): SampleRequest => ({ sampling: { mask: mask() } });
  for (
    const [small, large] of [
      [[penalised(3)], [penalised(5000)]],
      [[biased(2)], [biased(600)]],
      [[masked()], [masked(), masked(), masked(), masked()]],
    ]
  ) {
    const sampler = await LogitSampler.record(device, logits, { maxOutputs: 4, maxTop: 3 });
    // Enough runs for a device to capture a repeated list of launches.
    const run = async () => {
      const all = [];
      for (let i = 0; i < 3; i++) all.push(await sampler.sample(small!));
      return all;
    };
    const expected = await run();
    await sampler.sample(large!);
    assertEquals(await run(), expected);
    sampler.release();
  }
});

deviceTest("attention is the same after a run with more positions than planned", async (
  device,
  random,
) => {
  const pageTokens = 256, nPages = 4, nSequences = 8, headDim = 64;
  const kv = device.createKv({
    type: "F16",
    nPages,
    pageTokens,
    nKvHeads: 1,
    kHeadDim: headDim,
    vHeadDim: headDim,
  });
  for (let page = 0; page < nPages; page++) {
    // Numbers of about 1, in any layout of keys and values.
    const bits = Uint16Array.from(
      { length: kv.pageBytes / 2 },
      () => random.int(0, 1) << 15 | random.int(0x3400, 0x3bff),
    );
    kv.writePage(page, new Uint8Array(bits.buffer));
  }
  const table = Array.from({ length: nPages }, (_, page) => page);
  const last = nPages * pageTokens - 1;
  // The queries of each sequence, the last one at `position`.
  const inputs = (sequences: number, queries: number, position = last): StepInputs => {
    const n = sequences * queries;
    return {
      tokens: new Int32Array(n),
      positions: Int32Array.from({ length: n }, (_, i) => position - queries + 1 + i % queries),
      sequences: Int32Array.from({ length: n }, (_, i) => Math.floor(i / queries)),
      pageTables: Array.from({ length: sequences }, () => table),
      outputs: [],
    };
  };
  const nQueries = 16;
  const recorder = device.record({
    ...limitsOf(inputs(nSequences, nQueries)),
    maxPages: nPages,
  });
  const graph = new StepGraph(device, recorder);
  const qkv = graph.input(randomMatrix(random, 1, 3 * headDim));
  const options = { nHeads: 1, eps: 1e-5, weightOffset: 0, ropeLayout: "half" } as const;
  const q = recorder.ropeAppend(qkv, kv, options);
  const out = recorder.attention(q, kv, { nHeads: 1, scale: 1 / 8 });
  recorder.keep(out);
  const step = await recorder.finish();
  const run = async (position = last): Promise<Matrix> => {
    await step.run(inputs(1, 1, position));
    return { rows: 1, cols: headDim, data: new Float32Array(step.read(out, headDim, 0, 1)) };
  };
  for (let i = 1; i < nQueries; i++) await run(last - i);
  const expected = await run();
  assertSameBits(await run(), expected, "a second run");
  // Each sequence uses all pages: together they exceed the plan of a step.
  await step.run(inputs(nSequences, nQueries));
  for (let i = 0; i < 3; i++) assertSameBits(await run(), expected, "a run after it");
  step.release();
});

deviceTest("attention with fewer pages than the step has room for", async (device, random) => {
  const headDim = 8;
  const kv = device.createKv({
    type: "F32",
    nPages: 2,
    pageTokens: 4,
    nKvHeads: 1,
    kHeadDim: headDim,
    vHeadDim: headDim,
  });
  const recorder = device.record({ maxTokens: 4, maxOutputs: 1, maxSequences: 2, maxPages: 3 });
  const graph = new StepGraph(device, recorder);
  const q = recorder.ropeAppend(graph.input(randomMatrix(random, 4, 3 * headDim)), kv, {
    nHeads: 1,
    eps: 1e-5,
    weightOffset: 0,
    ropeLayout: "half",
  });
  const out = recorder.attention(q, kv, { nHeads: 1, scale: 1 });
  recorder.keep(out);
  const step = await recorder.finish();
  const run = async (tokens: number[], sequences: number[], pageTables: number[][]) => {
    const positions = tokens.map((token) => token % 2);
    await step.run({ tokens, positions, sequences, pageTables, outputs: [] });
    return [...step.read(out, headDim, 0, tokens.length)];
  };
  const together = await run([0, 1, 2, 3], [0, 0, 1, 1], [[0], [1]]);
  const apart = [await run([0, 1], [0, 0], [[0]]), await run([2, 3], [0, 0], [[1]])];
  assertEquals(together, apart.flat());
  step.release();
});

/** Keeps this thread busy, so that no mask is reported complete. */
function wait(milliseconds: number): void {
  for (const end = performance.now() + milliseconds; performance.now() < end;);
}

/** A convolution over 4 tokens with 2 slots of state, followed by sampling. */
async function recordConvolution(
  device: Backend,
  random: Random,
): Promise<{ step: Step; value: Value; cols: number }> {
  const cols = 40;
  const recorder = device.record({ maxTokens: 2, maxOutputs: 1, maxSequences: 1, maxPages: 1 });
  const graph = new StepGraph(device, recorder);
  const state = device.createState({ nSlots: 2, rows: 3, cols });
  const value = recorder.causalConv1d(
    graph.input(randomMatrix(random, 4, cols)),
    graph.weight(f32Weight(randomMatrix(random, cols, 4))),
    state,
    { activation: "identity" },
  );
  recorder.keep(value);
  recorder.sample(recorder.gatherOutputs(value), 0);
  return { step: await recorder.finish(), value, cols };
}

deviceTest("a stopped run does not affect the next one", async (device, random) => {
  const { step, value, cols } = await recordConvolution(device, random);
  const inputs = (slot: number, position: number): StepInputs => ({
    tokens: [position],
    positions: [position],
    sequences: [0],
    pageTables: [[0]],
    slots: [slot],
    outputs: [outputRow(0)],
  });
  const run = async (slot: number, position: number): Promise<Float32Array> => {
    await step.run(inputs(slot, position));
    return new Float32Array(step.read(value, cols, 0, 1));
  };
  const expected = [];
  for (const position of [0, 1, 2, 3]) expected.push(await run(1, position));
  // The first run advances the state of slot 0 and stops before sampling; its remaining work on the
  // device must not change slot 1.
  const mask = new Uint32Array(Math.ceil(cols / 32));
  const stopped = outputRow(0, {
    sampling: { ...outputRow(0).sampling, mask },
    fillMask: () => {
      // The run now waits for the mask until it sees the stop flag.
      wait(20);
      step.cancel();
      wait(100);
    },
  });
  await run(1, 0);
  for (const position of [1, 2, 3]) {
    await assertRejects(
      () => step.run({ ...inputs(0, position), outputs: [stopped] }),
      ForgeError,
      "stopped",
    );
    assertThrows(() => step.read(value, cols, 0, 1), ForgeError, "of the 0 of the last run");
    assertEquals(await run(1, position), expected[position]);
  }
  step.release();
});

deviceTest("a run stopped in its last operation reports no partial results", async (
  device,
  random,
) => {
  const nTokens = 256, cols = 1024, rows = 4096, headDim = 128, nHeads = 32;
  const weight = randomWeight(random, "Q8_0", rows, cols);
  const product = (graph: StepGraph) =>
    graph.recorder.matmul(graph.input(randomMatrix(random, 2, cols)), graph.weight(weight));
  const operations: Record<string, (graph: StepGraph) => Kept> = {
    product: (graph) => ({ value: product(graph), cols: rows }),
    "gated product": (graph) => ({
      value: graph.recorder.glu(product(graph), rows / 2, "silu"),
      cols: rows / 2,
    }),
    attention: (graph) => {
      const dims = { nKvHeads: 1, kHeadDim: headDim, vHeadDim: headDim };
      const kv = graph.kv({ type: "F16", nPages: 1, pageTokens: nTokens, ...dims });
      const qkv = graph.input(randomMatrix(random, 2, (nHeads + 2) * headDim));
      const options = { nHeads, eps: 1e-5, ropeLayout: "half" } as const;
      const q = graph.recorder.ropeAppend(qkv, kv, options);
      const value = graph.recorder.attention(q, kv, { nHeads, scale: 0.1 });
      return { value, cols: nHeads * headDim };
    },
  };
  const inputs = (token: number) => ({
    ...tokenInputs(nTokens),
    tokens: new Int32Array(nTokens).fill(token),
  });
  for (const [name, record] of Object.entries(operations)) {
    const recorder = device.record(limitsOf(inputs(0)));
    const { value, cols } = record(new StepGraph(device, recorder));
    recorder.keep(value);
    const step = await recorder.finish();
    const read = () => {
      const data = new Float32Array(step.read(value, cols, 0, nTokens));
      return { rows: nTokens, cols, data };
    };
    await step.run(inputs(0));
    const expected = read();
    for (let i = 1; i < 6; i++) {
      await step.run(inputs(1));
      // The last operation takes most of the time.
      const delay = step.nativeTime() / 1e6 * i / 6;
      const run = step.run(inputs(0));
      await new Promise((resume) => setTimeout(resume, delay));
      step.cancel();
      try {
        await run;
      } catch (error) {
        assert(error instanceof ForgeError && error.code === "cancelled", `${error}`);
        continue;
      }
      assertSameBits(read(), expected, name);
    }
    step.release();
  }
}, devices.filter(({ kind }) => kind === "cpu").slice(0, 1));

/** The rows of a weight selected by tokens. */
function embed(device: Backend, weight: TestWeight, tokens: readonly number[]): Promise<Matrix> {
  return runStep(device, { ...tokenInputs(tokens.length), tokens }, (graph) => ({
    value: graph.recorder.embed(graph.weight(weight)),
    cols: weight.cols,
  }));
}

deviceTest("a weight copied to the device in several pieces is complete", async (
  device,
  random,
) => {
  // Several pieces of 32 MiB and a remainder.
  const cols = 4096, rows = 2 * 4096 + 600;
  const words = new Uint32Array(rows * cols / 2);
  for (let i = 0; i < words.length; i++) words[i] = (i * 0x9e3779b1 & 0x03ff03ff) | 0x34003400;
  const bytes = new Uint8Array(words.buffer);
  const tokens = [0, 4095, 4096, 4097, 8191, 8192, rows - 1, random.int(0, rows - 1)];
  const actual = await embed(device, { type: "F16", rows, cols, bytes }, tokens);
  const expected = matrixOfRows(
    tokens.length,
    cols,
    (i) =>
      Float32Array.from({ length: cols }, (_, col) => {
        const bits = new Uint16Array(words.buffer, (tokens[i]! * cols + col) * 2, 1)[0]!;
        return (1 + (bits & 0x3ff) / 1024) * 2 ** ((bits >> 10) - 15);
      }),
  );
  assertSameBits(actual, expected, "rows");
});

deviceTest("a weight with more rows than the grid limit of a GPU", async (device, random) => {
  const rows = 65_600, cols = 32;
  const one = randomWeight(random, "Q8_0", 16, cols);
  const rowBytes = one.bytes.length / 16;
  const bytes = new Uint8Array(rows * rowBytes);
  for (let row = 0; row < rows; row++) {
    const from = (row * 7 + (row >> 12)) % 16 * rowBytes;
    bytes.set(one.bytes.subarray(from, from + rowBytes), row * rowBytes);
  }
  const tokens = [0, 1, 65_533, 65_534, 65_535, 65_536, 65_599];
  const few = await embed(device, one, tokens.map((row) => (row * 7 + (row >> 12)) % 16));
  assertSameBits(await embed(device, { type: "Q8_0", rows, cols, bytes }, tokens), few, "rows");
});

deviceTest("a step gives the same result after another step with its weights", async (
  device,
  random,
) => {
  const x = randomMatrix(random, 3, 64), inputs = tokenInputs(3);
  const graph = new StepGraph(device, device.record(limitsOf(inputs)));
  const weight = graph.weight(randomWeight(random, "Q8_0", 40, 64));
  const record = async () => {
    const own = new StepGraph(device, device.record(limitsOf(inputs)));
    const value = own.recorder.matmul(own.input(x), weight);
    own.recorder.keep(value);
    const step = await own.recorder.finish();
    const run = async (): Promise<Matrix> => {
      await step.run(inputs);
      return { rows: 3, cols: 40, data: new Float32Array(step.read(value, 40, 0, 3)) };
    };
    return { run, step };
  };
  const first = await record();
  const expected = await first.run();
  const second = await record();
  assertSameBits(await second.run(), expected, "the second step");
  assertSameBits(await first.run(), expected, "the first step again");
  second.step.release();
  assertSameBits(await first.run(), expected, "the first step alone");
  first.step.release();
});

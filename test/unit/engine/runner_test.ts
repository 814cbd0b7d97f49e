import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import {
  type Backend,
  type KvCache,
  type KvShape,
  type OperationTime,
  Recorder,
  type StateCache,
  type StateShape,
  type Step,
  type StepInputs,
  type StepLimits,
  type StepResult,
  type Value,
} from "../../../src/backend.ts";
import { type Chunk, Runner, type RunnerOptions, UNSAMPLED } from "../../../src/engine/runner.ts";
import type { PageTable } from "../../../src/engine/cache/kv_pages.ts";
import { ForgeError } from "../../../src/errors.ts";
import type { CausalLm, StateMatrix } from "../../../src/models/causal_lm.ts";
import { FakeBackend } from "../models/fakes.ts";

/** A fake step whose runs the test ends by hand. */
class FakeStep implements Step {
  readonly scratchBytes = 1000;
  readonly runs: StepInputs[] = [];
  /** Result of each run. */
  results: StepResult[] = [];
  cancels = 0;
  #end: PromiseWithResolvers<StepResult[]> | undefined;

  run(inputs: StepInputs): Promise<StepResult[]> {
    assert(this.#end === undefined, "two runs of one step overlap");
    // The runner packs every run into the same arrays.
    this.runs.push({
      ...inputs,
      tokens: Array.from(inputs.tokens),
      positions: Array.from(inputs.positions),
      sequences: Array.from(inputs.sequences),
      pageTables: inputs.pageTables.map((table) => Array.from(table)),
    });
    this.#end = Promise.withResolvers();
    return this.#end.promise;
  }

  /** Ends the run in progress and lets its awaiters continue. */
  async end(error?: Error): Promise<void> {
    const end = this.#end!;
    this.#end = undefined;
    if (error === undefined) end.resolve(this.results);
    else end.reject(error);
    await settle();
  }

  cancel(): void {
    this.cancels++;
  }

  read(_value: Value, cols: number): Float32Array {
    return new Float32Array(cols).fill(this.runs.length);
  }

  nativeTime(): number {
    return 1e6 * this.runs.length;
  }

  profile(): void {}

  operationTimes(): OperationTime[] {
    return [];
  }

  release(): void {}
}

/** Waits until the reactions of settled promises have run. */
function settle(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

/** A recorder that accepts every operation and returns one step. */
function fakeRecorder(step: Step): Recorder {
  return new Recorder({ record: () => 1 as Value, keep() {}, finish: () => Promise.resolve(step) });
}

async function open(
  contextLength: number,
  vocabSize = 100,
  options: Partial<RunnerOptions> = {},
  stateLayers: readonly StateMatrix[] = [],
  device: Partial<Pick<Backend, "kind" | "memory">> = {},
  model: Partial<CausalLm> = {},
) {
  const step = new FakeStep();
  const recorded: StepLimits[] = [];
  const copies: string[] = [];
  const states: StateShape[] = [];
  const shapes: KvShape[] = [];
  const base: Backend = new FakeBackend();
  const backend: Backend = {
    kind: base.kind,
    info: base.info,
    memory: () => base.memory(),
    mapWeight: (...args) => base.mapWeight(...args),
    uploadWeight: (...args) => base.uploadWeight(...args),
    readWeight: (...args) => base.readWeight(...args),
    createKv: (shape) => {
      shapes.push(shape);
      const copyPage = (from: number, to: number) => copies.push(`${from}→${to}`);
      return { handle: 0, pageBytes: 10, copyPage } as unknown as KvCache;
    },
    createState: (shape) => {
      states.push(shape);
      const copySlot = (from: number, to: number) => copies.push(`slot ${from}→${to}`);
      const readSlot = (slot: number) => Uint8Array.of(slot);
      return { handle: 0, slotBytes: 7, copySlot, readSlot } as unknown as StateCache;
    },
    record: (limits) => {
      recorded.push(limits);
      return fakeRecorder(step);
    },
    close() {},
    ...device,
  };
  const layer = { nKvHeads: 1, kHeadDim: 8, vHeadDim: 8 };
  const lm: CausalLm = {
    vocabSize,
    hiddenSize: 8,
    hasHead: true,
    contextLength,
    kvLayers: [layer, layer],
    stateLayers,
    forward: () => 1 as Value,
    hidden: () => 1 as Value,
    ...model,
  };
  const runner = await Runner.open(backend, lm, { contextLength, kvType: "F32", ...options });
  return { runner, step, recorded, shapes, copies, states };
}

Deno.test("a model with recurrent state: slots are allocated with pages and passed to runs", async () => {
  const layers = [{ rows: 3, cols: 8 }, { rows: 16, cols: 4 }];
  const options = { maxSequences: 2, cacheTokens: 384, nSlots: 2 };
  const { runner, step, states, copies } = await open(192, 100, options, layers);
  assertEquals(states, layers.map((layer) => ({ ...layer, nSlots: 2 })));
  assertEquals([runner.slotBytes, runner.stateBytes], [[7, 7], 28]);
  const first = runner.newSequence();
  using second = runner.newSequence();
  const run = runner.run([chunkOf(second, [7, 8], 0), chunkOf(first, [5], 0)]);
  assertEquals([second.slot, first.slot, step.runs[0]?.slots], [0, 1, [0, 1]]);
  await step.end();
  await run;
  using third = runner.newSequence();
  const error = await assertRejects(() => runner.run([chunkOf(third, [1], 0)]), ForgeError);
  assertEquals(
    error.message,
    "the recurrent states of 2 sequences are in use; open the model for more",
  );
  assertEquals(third.pages, []);
  first.release();
  assertEquals([third.reserve(1), third.slot], [true, 1]);
  runner.copySlot(0, 1);
  assertEquals(copies, ["slot 0→1", "slot 0→1"]);
  assertEquals(runner.readSlot(1), [Uint8Array.of(1), Uint8Array.of(1)]);
  assertEquals(runner.readSlot(undefined), []);
});

/** A chunk without outputs. */
function chunkOf(table: PageTable, tokens: readonly number[], start: number): Chunk {
  return { table, tokens, start, outputs: [] };
}

Deno.test("a runner sizes its cache for the context and bounds its runs", async () => {
  const { runner, recorded, shapes } = await open(1000);
  const limits = { maxTokens: 512, maxOutputs: 512, maxSequences: 1 };
  assertEquals(runner.limits, { ...limits, maxBranches: 0, maxTop: 20 });
  assertEquals(recorded, [{ ...limits, maxPages: 16 }]);
  assertEquals(shapes.map(({ nPages, pageTokens }) => nPages * pageTokens), [1024, 1024]);
  const { kvBytes, scratchBytes, pages } = runner;
  assertEquals([kvBytes, scratchBytes, pages.freePages], [2 * 16 * 10, 1000, 16]);
  assertEquals(runner.kvBytesPerToken, 2 * 10 / 64);
});

Deno.test("caches have their types, and slots for a sequence more than a step takes", async () => {
  const layer = { nKvHeads: 1, kHeadDim: 8, vHeadDim: 8 };
  const kvLayers = [layer, { ...layer, keepsHidden: true }];
  const types = async (kvType: RunnerOptions["kvType"]) =>
    (await open(100, 100, { kvType }, [], {}, { kvLayers })).shapes.map(({ type }) => type);
  assertEquals(await types("F32"), ["F32", "F32"]);
  assertEquals(await types("F16"), ["F16", "BF16"]);
  assertEquals(await types("Q8_0"), ["Q8_0", "BF16"]);
  const { states } = await open(100, 100, { maxSequences: 3 }, [{ rows: 3, cols: 8 }]);
  assertEquals(states.map(({ nSlots }) => nSlots), [4]);
});

Deno.test("a bidirectional model computes a whole context, and has no logits", async () => {
  const { runner } = await open(1000, 100, {}, [], {}, { isBidirectional: true });
  assertEquals(runner.limits.maxTokens, 1000);
  assertThrows(() => runner.readLogits(0), ForgeError, "it has no logits");
});

Deno.test("a step that embeds is recorded once it is used, counted and cancelled", async () => {
  const { runner, step, recorded } = await open(600);
  using table = runner.newSequence();
  assertEquals([recorded.length, runner.scratchBytes], [1, 1000]);
  const output = { ...UNSAMPLED, row: 0 };
  const embedding = runner.embed([{ ...chunkOf(table, [1, 2], 0), outputs: [output] }]);
  await settle();
  runner.cancel();
  assertEquals(step.cancels, 2, "of the step that samples, and of the one that embeds");
  await step.end();
  assertEquals(await embedding, [[new Float32Array(8).fill(1)]]);
  assertEquals([recorded.length, runner.scratchBytes], [2, 2000]);
  assertEquals(recorded[1], { ...recorded[0]!, maxOutputs: recorded[0]!.maxTokens });
});

Deno.test("each chunk of a run has its scales of the adapters", async () => {
  const { runner, step } = await open(100, 100, {
    maxSequences: 3,
    nAdapters: 2,
    cacheTokens: 192,
  });
  const tables = [1, 2, 3].map(() => runner.newSequence());
  const run = runner.run([
    { ...chunkOf(tables[0]!, [1], 0), adapterScales: Float32Array.of(0.5, 2) },
    chunkOf(tables[1]!, [1], 0),
    { ...chunkOf(tables[2]!, [1, 2], 0), adapterScales: Float32Array.of(0, 3) },
  ]);
  assertEquals(step.runs[0]?.adapterScales, Float32Array.of(0.5, 2, 0, 0, 0, 3));
  await step.end();
  await run;
  for (const table of tables) table.release();
});

Deno.test("a runner supports several sequences in a cache of any size", async () => {
  const { runner, recorded, shapes } = await open(100, 50, { maxSequences: 3, cacheTokens: 200 });
  const limits = { maxTokens: 300, maxOutputs: 300, maxSequences: 3 };
  assertEquals(runner.limits, { ...limits, maxBranches: 0, maxTop: 20 });
  assertEquals(recorded, [{ ...limits, maxPages: 2 }]);
  assertEquals(shapes.map(({ nPages }) => nPages), [4, 4]);
});

Deno.test("a short context limits runs, a large vocabulary limits outputs", async () => {
  assertEquals((await open(10)).runner.limits.maxTokens, 10);
  assertEquals((await open(1000, 2 ** 18)).runner.limits.maxOutputs, 64);
  const { limits } = (await open(1000, 2 ** 26, { maxSequences: 8 })).runner;
  assertEquals([limits.maxOutputs, limits.maxSequences], [1, 1]);
  assertEquals((await open(1000, 5)).runner.limits.maxTop, 5);
  const branches = { maxSequences: 2, maxBranches: 16 };
  assertEquals((await open(5, 100, branches)).runner.limits.maxBranches, 8);
  const { runner, recorded } = await open(50, 100, branches);
  assertEquals([runner.limits.maxSequences, runner.limits.maxBranches], [2, 16]);
  // Each branch is a sequence of the step.
  assertEquals(recorded[0]!.maxSequences, 18);
});

Deno.test("a CUDA device with much memory takes long chunks, others 512 tokens", async () => {
  const limit = async (kind: Backend["kind"], total: number) => {
    const memory = () => ({ total, free: total });
    return (await open(10_000, 100, {}, [], { kind, memory })).runner.limits.maxTokens;
  };
  // 64 bytes for each of the 8 elements of a hidden state, in 1/32 of the memory.
  assertEquals(await limit("cuda", 32 * 512 * 4096), 4096);
  assertEquals(await limit("cuda", 32 * 512 * 3000), 2048);
  assertEquals(await limit("cuda", 2 ** 40), 4096);
  assertEquals(await limit("cuda", 2 ** 20), 512);
  assertEquals(await limit("metal", 2 ** 40), 512);
  assertEquals(await limit("cpu", 2 ** 40), 512);
});

Deno.test("a run passes each token's position, sequence and pages", async () => {
  const { runner, step } = await open(192, 100, { maxSequences: 2, cacheTokens: 384 });
  using first = runner.newSequence();
  first.reserve(1);
  using second = runner.newSequence();
  const output = { ...UNSAMPLED, row: 0 };
  const failed = new ForgeError("bad_model", "NaN");
  step.results = [1, 2].map((token) => ({ token, logprob: 0, top: [] }));
  step.results.push(failed);
  const run = runner.run([
    { table: second, tokens: [7, 8, 9], start: 63, outputs: [{ ...output, row: 2 }] },
    { table: first, tokens: [5, 6], start: 4, outputs: [output, { ...output, row: 1 }] },
  ]);
  assertEquals(step.runs, [{
    tokens: [7, 8, 9, 5, 6],
    positions: [63, 64, 65, 4, 5],
    sequences: [0, 0, 0, 1, 1],
    pageTables: [[1, 2], [0]],
    outputs: [2, 3, 4].map((row) => ({ ...output, row })),
  }]);
  await step.end();
  assertEquals(await run, [[step.results[0]!], [step.results[1]!, failed]]);
});

Deno.test("a run passes the parents of a tree", async () => {
  const { runner, step } = await open(192, 100, { maxSequences: 3, cacheTokens: 384 });
  const tables = [1, 2, 3].map(() => runner.newSequence());
  const chunk = (sequence: number, start: number, length: number, parent?: Chunk["parent"]) => {
    return { ...chunkOf(tables[sequence]!, new Array<number>(length).fill(7), start), parent };
  };
  const running = runner.run([
    chunk(0, 4, 3),
    chunk(1, 6, 2, { chunk: 0, row: 1 }),
    chunk(2, 8, 1, { chunk: 1, row: 1 }),
  ]);
  assertEquals(step.runs.map(({ parents }) => parents), [[-1, 0, 1, 1, 3, 4]]);
  await step.end();
  await running;
  for (const table of tables) table.release();
});

Deno.test("runs are serial, and a failed run does not block the next one", async () => {
  const { runner, step } = await open(100);
  using table = runner.newSequence();
  const failing = runner.run([chunkOf(table, [1], 0)]);
  const failed = assertRejects(() => failing, ForgeError, "no more");
  await step.end(new ForgeError("device", "no more"));
  await failed;
  const next = runner.run([chunkOf(table, [2], 0)]);
  await step.end();
  await next;
  assertEquals(step.runs.length, 2);
});

Deno.test("a signal stops only the run in progress", async () => {
  const { runner, step } = await open(100);
  using table = runner.newSequence();
  const chunk = chunkOf(table, [1], 0);
  const stopped = () => runner.run([chunk], { signal: AbortSignal.abort() });
  assertEquals((await assertRejects(stopped, ForgeError)).code, "cancelled");
  assertEquals(step.runs.length, 0);

  const controller = new AbortController();
  const run = runner.run([chunk], { signal: controller.signal });
  controller.abort();
  assertEquals(step.cancels, 1);
  const cancelled = assertRejects(() => run, ForgeError);
  await step.end(new ForgeError("cancelled", "stopped on request"));
  await cancelled;

  const late = new AbortController();
  const ended = runner.run([chunk], { signal: late.signal });
  await step.end();
  await ended;
  late.abort();
  assertEquals(step.cancels, 1);
});

Deno.test("tokens beyond the context are rejected", async () => {
  const { runner, step } = await open(80);
  using table = runner.newSequence();
  const error = await assertRejects(
    () => runner.run([chunkOf(table, [1, 2, 3], 78)]),
    ForgeError,
    "81 tokens do not fit the context of 80",
  );
  assertEquals([error.code, step.runs.length, runner.pages.freePages], ["bad_input", 0, 2]);
  const run = runner.run([chunkOf(table, [1, 2], 78)]);
  await step.end();
  await run;
});

Deno.test("a sequence without a free page is rejected, and the others continue", async () => {
  const { runner, step } = await open(128);
  using first = runner.newSequence();
  first.reserve(65);
  using second = runner.newSequence();
  await assertRejects(
    () => runner.run([chunkOf(second, [1], 0)]),
    ForgeError,
    "the KV cache of 128 tokens",
  );
  const run = runner.run([chunkOf(first, [1], 0)]);
  await step.end();
  await run;
});

Deno.test("a sequence with a state but no free page is told about pages", async () => {
  const { runner } = await open(128, 100, { nSlots: 1 }, [{ rows: 3, cols: 8 }]);
  using table = runner.newSequence();
  assertEquals([table.reserve(1), runner.slots?.free], [true, 0]);
  runner.pages.allocate();
  const run = () => runner.run([chunkOf(table, [1], 64)]);
  await assertRejects(run, ForgeError, "the KV cache of 128 tokens is full");
});

Deno.test("a shared page is never written", async () => {
  const { runner, step, copies } = await open(256);
  using table = runner.newSequence();
  table.reserve(200);
  const [first, second] = table.pages;
  runner.pages.share(second!);
  for (const start of [64, 100, 127]) {
    const run = () => runner.run([chunkOf(table, [1, 2], start)]);
    await assertRejects(run, RangeError, `KV page ${second} is shared`);
  }
  const run = runner.run([chunkOf(table, [1, 2], 128)]);
  await step.end();
  await run;
  runner.pages.release(second!);
  runner.copyPage(first!, second!);
  assertEquals(copies, ["0→1", "0→1"]);
});

Deno.test("a run of several steps reserves pages for all and orders their outputs", async () => {
  const { runner, step } = await open(192, 100, { maxSequences: 2, cacheTokens: 384 });
  using first = runner.newSequence();
  using second = runner.newSequence();
  const outputs = [{ ...UNSAMPLED, forcedToken: undefined, row: 0 }];
  step.results = [1, 2, 3, 4].map((token) => ({ token, logprob: 0, top: [] }));
  const chunks = [
    { table: first, tokens: [5], start: 62, outputs },
    { table: second, tokens: [6], start: 3, outputs },
  ];
  const run = runner.run(chunks, { nSteps: 3, endTokens: [9] });
  assertEquals([first.pages.length, second.pages.length], [2, 1]);
  const { nSteps, endTokens } = step.runs[0]!;
  assertEquals([nSteps, endTokens], [3, [9]]);
  await step.end();
  const tokens = (await run).map((results) =>
    results.map((result) => result instanceof ForgeError ? -1 : result.token)
  );
  assertEquals(tokens, [[1, 3], [2, 4]]);
  const beyond = () => runner.run([{ ...chunks[0]!, start: 191 }], { nSteps: 2 });
  await assertRejects(beyond, ForgeError, "193 tokens do not fit the context of 192");
});

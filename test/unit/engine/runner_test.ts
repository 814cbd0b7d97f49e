import { assert, assertEquals, assertRejects } from "@std/assert";
import type {
  Backend,
  KvCache,
  Recorder,
  Step,
  StepInputs,
  StepLimits,
  StepOutput,
  Value,
} from "../../../src/backend.ts";
import { Runner, UNSAMPLED } from "../../../src/engine/runner.ts";
import { ForgeError } from "../../../src/errors.ts";
import type { CausalLm } from "../../../src/models/causal_lm.ts";
import { FakeBackend } from "../models/fakes.ts";

/** A step whose runs the test ends. */
class FakeStep implements Step {
  readonly scratchBytes = 1000;
  readonly runs: StepInputs[] = [];
  cancels = 0;
  #end: PromiseWithResolvers<StepOutput[]> | undefined;

  run(inputs: StepInputs): Promise<StepOutput[]> {
    assert(this.#end === undefined, "two runs of one step overlap");
    this.runs.push(inputs);
    this.#end = Promise.withResolvers();
    return this.#end.promise;
  }

  /** Ends the run in progress, and lets what waits for it go on. */
  async end(error?: Error): Promise<void> {
    const end = this.#end!;
    this.#end = undefined;
    if (error === undefined) end.resolve([]);
    else end.reject(error);
    await settle();
  }

  cancel(): void {
    this.cancels++;
  }

  read(_value: Value, cols: number): Float32Array {
    return new Float32Array(cols).fill(this.runs.length);
  }

  release(): void {}
}

/** Lets promises that are settled have their effects. */
function settle(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

/** What the runner asks of a recorder beside the model's own operations. */
function fakeRecorder(step: Step): Recorder {
  const recorder: Pick<Recorder, "keep" | "sample" | "finish"> = {
    keep() {},
    sample() {},
    finish: () => Promise.resolve(step),
  };
  return recorder as Recorder;
}

async function open(contextLength: number, vocabSize = 100) {
  const step = new FakeStep();
  const recorded: StepLimits[] = [];
  const shapes: { nPages: number; pageTokens: number }[] = [];
  const base: Backend = new FakeBackend();
  const backend: Backend = {
    kind: base.kind,
    info: base.info,
    mapWeight: (...args) => base.mapWeight(...args),
    uploadWeight: (...args) => base.uploadWeight(...args),
    readWeight: (...args) => base.readWeight(...args),
    createKv: (shape) => {
      shapes.push(shape);
      return { handle: 0, pageBytes: 10 } as KvCache;
    },
    record: (limits) => {
      recorded.push(limits);
      return fakeRecorder(step);
    },
    close() {},
  };
  const layer = { nKvHeads: 1, kHeadDim: 8, vHeadDim: 8 };
  const lm: CausalLm = {
    vocabSize,
    contextLength,
    kvLayers: [layer, layer],
    forward: () => 1 as Value,
  };
  const runner = await Runner.open(backend, lm, { contextLength, kvType: "F32" });
  return { runner, step, recorded, shapes };
}

Deno.test("a runner makes room for the context and bounds its runs", async () => {
  const { runner, recorded, shapes } = await open(1000);
  assertEquals(runner.limits, { maxTokens: 512, maxOutputs: 512, maxTop: 20 });
  assertEquals(recorded, [{ maxTokens: 512, maxOutputs: 512, maxSequences: 1, maxPages: 16 }]);
  assertEquals(shapes.map(({ nPages, pageTokens }) => nPages * pageTokens), [1024, 1024]);
  assertEquals([runner.kvBytes, runner.scratchBytes, runner.freePages], [2 * 16 * 10, 1000, 16]);
});

Deno.test("a short context makes short runs, a large vocabulary few outputs", async () => {
  assertEquals((await open(10)).runner.limits, { maxTokens: 10, maxOutputs: 10, maxTop: 20 });
  assertEquals((await open(1000, 2 ** 18)).runner.limits.maxOutputs, 64);
  assertEquals((await open(1000, 2 ** 26)).runner.limits.maxOutputs, 1);
  assertEquals((await open(1000, 5)).runner.limits.maxTop, 5);
});

Deno.test("a run tells each token's position, sequence and pages", async () => {
  const { runner, step } = await open(192);
  using other = runner.newSequence();
  other.reserve(1);
  using table = runner.newSequence();
  const run = runner.run(table, [7, 8, 9], 63, []);
  await settle();
  assertEquals(step.runs, [{
    tokens: [7, 8, 9],
    positions: [63, 64, 65],
    sequences: new Int32Array(3),
    pageTables: [[1, 2]],
    outputs: [],
  }]);
  await step.end();
  await run;
});

Deno.test("runs wait for each other, in the order they were asked for", async () => {
  const { runner, step } = await open(100);
  using table = runner.newSequence();
  const runs = [1, 2, 3].map((token) => runner.run(table, [token], 0, []));
  const logits = runner.logits(table, [4], 0);
  for (const token of [1, 2, 3, 4]) {
    await settle();
    assertEquals(step.runs.length, token);
    assertEquals(step.runs.at(-1)?.tokens, [token]);
    await step.end();
  }
  await Promise.all(runs);
  assertEquals((await logits)[0], 4);
  assertEquals(step.runs[3]?.outputs, [{ ...UNSAMPLED, row: 0 }]);
});

Deno.test("a run that fails lets the next one run", async () => {
  const { runner, step } = await open(100);
  using table = runner.newSequence();
  const failing = runner.run(table, [1], 0, []);
  const next = runner.run(table, [2], 0, []);
  await settle();
  const failed = assertRejects(() => failing, ForgeError, "no more");
  await step.end(new ForgeError("device", "no more"));
  await failed;
  await step.end();
  await next;
  assertEquals(step.runs.length, 2);
});

Deno.test("a run that was stopped before its turn does not run", async () => {
  const { runner, step } = await open(100);
  using table = runner.newSequence();
  const stopped = () => runner.run(table, [1], 0, [], AbortSignal.abort());
  assertEquals((await assertRejects(stopped, ForgeError)).code, "cancelled");

  const first = runner.run(table, [1], 0, []);
  const controller = new AbortController();
  const waiting = runner.run(table, [2], 0, [], controller.signal);
  await settle();
  controller.abort();
  const cancelled = assertRejects(() => waiting, ForgeError, "stopped on request");
  await step.end();
  await cancelled;
  await first;
  assertEquals([step.runs.length, step.cancels], [1, 0]);
});

Deno.test("a signal stops the run in progress and nothing after it", async () => {
  const { runner, step } = await open(100);
  using table = runner.newSequence();
  const controller = new AbortController();
  const run = runner.run(table, [1], 0, [], controller.signal);
  await settle();
  controller.abort();
  assertEquals(step.cancels, 1);
  const cancelled = assertRejects(() => run, ForgeError);
  await step.end(new ForgeError("cancelled", "stopped on request"));
  await cancelled;

  const late = new AbortController();
  const ended = runner.run(table, [1], 0, [], late.signal);
  await settle();
  await step.end();
  await ended;
  late.abort();
  assertEquals(step.cancels, 1);
});

Deno.test("what does not fit the context is not run", async () => {
  const { runner, step } = await open(80);
  using table = runner.newSequence();
  const error = await assertRejects(
    () => runner.run(table, [1, 2, 3], 78, []),
    ForgeError,
    "81 tokens do not fit the context of 80",
  );
  assertEquals([error.code, step.runs.length, runner.freePages], ["bad_input", 0, 2]);
});

Deno.test("a sequence that finds no page is refused, and the others go on", async () => {
  const { runner, step } = await open(128);
  using first = runner.newSequence();
  first.reserve(65);
  using second = runner.newSequence();
  await assertRejects(
    () => runner.run(second, [1], 0, []),
    ForgeError,
    "the KV cache of 128 tokens",
  );
  const run = runner.run(first, [1], 0, []);
  await settle();
  await step.end();
  await run;
});

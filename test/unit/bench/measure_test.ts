import { assert, assertEquals, assertRejects } from "@std/assert";
import type { StepResult } from "../../../src/backend.ts";
import { measure, type MeasuredRunner, type Sample } from "../../../src/bench/measure.ts";
import { KvPages, PageTable } from "../../../src/engine/cache/kv_pages.ts";
import type { Chunk, RunOptions } from "../../../src/engine/runner.ts";
import { ForgeError } from "../../../src/errors.ts";

interface Call {
  readonly start: number;
  readonly length: number;
  readonly rows: readonly number[];
  /** Index of the sequence. */
  readonly sequence?: number;
}

/** A runner that records its calls and computes nothing. */
class FakeRunner implements MeasuredRunner {
  readonly vocabSize = 7;
  readonly limits;
  readonly calls: Call[][] = [];
  readonly #pages = new KvPages(4, 16);
  readonly #tables: PageTable[] = [];
  openSequences = 0;

  constructor(maxSequences = 1) {
    this.limits = { maxTokens: 4, maxOutputs: 4, maxSequences, maxBranches: 0, maxTop: 0 };
  }

  newSequence(): PageTable {
    this.openSequences++;
    const table = new PageTable(this.#pages);
    this.#tables.push(table);
    const release = table.release.bind(table);
    table.release = () => {
      this.openSequences--;
      release();
    };
    return table;
  }

  run(chunks: readonly Chunk[], { signal }: RunOptions = {}): Promise<StepResult[][]> {
    if (signal?.aborted) return Promise.reject(new ForgeError("cancelled", "stopped"));
    this.calls.push(chunks.map(({ table, tokens, start, outputs }) => {
      for (const token of Array.from(tokens)) assert(token >= 0 && token < this.vocabSize);
      for (const output of outputs) assertEquals(output.forcedToken, undefined);
      const call = { start, length: tokens.length, rows: outputs.map(({ row }) => row) };
      const sequence = this.#tables.indexOf(table);
      return sequence === 0 ? call : { ...call, sequence };
    }));
    return Promise.resolve(
      chunks.map(({ outputs }) => outputs.map(() => ({ token: 1, logprob: 0, top: [] }))),
    );
  }
}

Deno.test("measure: fills the depth once, warms up, then repeats the same work", async () => {
  const runner = new FakeRunner();
  const samples: Sample[] = [];
  for await (const sample of measure(runner, { nPrompt: 6, nGen: 2, nDepth: 3 }, 2)) {
    for (const time of [sample.prefill, sample.decode]) assert(Number.isInteger(time) && time >= 0);
    samples.push(sample);
  }
  assertEquals(samples.length, 2);
  const repetition: Call[] = [
    { start: 3, length: 4, rows: [] },
    { start: 7, length: 2, rows: [1] },
    { start: 9, length: 1, rows: [0] },
    { start: 10, length: 1, rows: [0] },
  ];
  assertEquals(runner.calls.map(([call]) => call), [
    { start: 0, length: 1, rows: [0] },
    { start: 0, length: 4, rows: [] },
    { start: 4, length: 4, rows: [] },
    { start: 8, length: 1, rows: [0] },
    { start: 9, length: 1, rows: [0] },
    ...repetition,
    ...repetition,
  ]);
  assertEquals(runner.openSequences, 0);
});

Deno.test("measure: keeps finished repetitions when stopped, and frees the pages", async () => {
  const runner = new FakeRunner();
  const stop = new AbortController();
  let taken = 0;
  const work = async () => {
    const workload = { nPrompt: 0, nGen: 1, nDepth: 0 };
    for await (const _ of measure(runner, workload, 5, stop.signal)) {
      if (++taken === 2) stop.abort();
    }
  };
  const error = await assertRejects(work, ForgeError);
  assertEquals([taken, error.code], [2, "cancelled"]);
  assertEquals(runner.openSequences, 0);
});

Deno.test("measure: several sequences share runs, prompts packed up to the batch", async () => {
  const runner = new FakeRunner(3);
  const workload = { nPrompt: 3, nGen: 1, nDepth: 0, nParallel: 3 };
  for await (const _ of measure(runner, workload, 1));
  const prompts: Call[][] = [
    [{ start: 0, length: 3, rows: [2] }, { start: 0, length: 1, rows: [], sequence: 1 }],
    [
      { start: 1, length: 2, rows: [1], sequence: 1 },
      { start: 0, length: 2, rows: [], sequence: 2 },
    ],
    [{ start: 2, length: 1, rows: [0], sequence: 2 }],
  ];
  const decode = (start: number) =>
    [0, 1, 2].map((sequence) => ({
      start,
      length: 1,
      rows: [0],
      ...(sequence === 0 ? {} : { sequence }),
    }));
  assertEquals(runner.calls, [decode(0), ...prompts, decode(3), ...prompts, decode(3)]);
  assertEquals(runner.openSequences, 0);
});

Deno.test("measure: a batch size cuts prompts; too many sequences are rejected", async () => {
  const runner = new FakeRunner();
  for await (const _ of measure(runner, { nPrompt: 3, nGen: 0, nDepth: 0, nBatch: 2 }, 0));
  const spans = runner.calls.flat().map(({ start, length }) => [start, length]);
  assertEquals(spans, [[0, 1], [0, 2], [2, 1]]);
  // A run takes no more than the runner's limit of 4 tokens.
  const small = new FakeRunner();
  for await (const _ of measure(small, { nPrompt: 8, nGen: 0, nDepth: 0, nBatch: 9 }, 0));
  assertEquals(small.calls.map((run) => run.map(({ length }) => length)), [[1], [4], [4]]);
  const work = async () => {
    const workload = { nPrompt: 1, nGen: 0, nDepth: 0, nParallel: 2 };
    for await (const _ of measure(runner, workload, 1));
  };
  const error = await assertRejects(
    work,
    ForgeError,
    "--parallel is 2; valid for this model is 1 to 1",
  );
  assertEquals(error.code, "usage");
});

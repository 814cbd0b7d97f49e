import { assert, assertEquals, assertRejects } from "@std/assert";
import type { StepResult } from "../../../src/backend.ts";
import { measure, type MeasuredRunner } from "../../../src/bench/measure.ts";
import { KvPages, PageTable } from "../../../src/engine/kv_pages.ts";
import type { Chunk } from "../../../src/engine/runner.ts";
import { ForgeError } from "../../../src/errors.ts";

interface Call {
  readonly start: number;
  readonly length: number;
  readonly rows: readonly number[];
}

/** A runner that computes nothing and remembers what it was asked. */
class FakeRunner implements MeasuredRunner {
  readonly vocabSize = 7;
  readonly limits = { maxTokens: 4, maxOutputs: 4, maxSequences: 1, maxTop: 0 };
  readonly calls: Call[] = [];
  readonly #pages = new KvPages(4, 16);
  openSequences = 0;

  newSequence(): PageTable {
    this.openSequences++;
    const table = new PageTable(this.#pages);
    const release = table.release.bind(table);
    table.release = () => {
      this.openSequences--;
      release();
    };
    return table;
  }

  run([chunk]: readonly Chunk[], signal?: AbortSignal): Promise<StepResult[][]> {
    if (signal?.aborted) return Promise.reject(new ForgeError("cancelled", "stopped"));
    const { tokens, start, outputs } = chunk!;
    for (const token of Array.from(tokens)) assert(token >= 0 && token < this.vocabSize);
    for (const output of outputs) assertEquals(output.forcedToken, undefined);
    this.calls.push({ start, length: tokens.length, rows: outputs.map(({ row }) => row) });
    return Promise.resolve([outputs.map(() => ({ token: 1, logprob: 0, top: [] }))]);
  }
}

Deno.test("measure: depth once, a warm-up, then the same work from the same place", async () => {
  const runner = new FakeRunner();
  const samples: number[] = [];
  for await (const time of measure(runner, { nPrompt: 6, nGen: 2, nDepth: 3 }, 2)) {
    assert(Number.isInteger(time) && time >= 0);
    samples.push(time);
  }
  assertEquals(samples.length, 2);
  const repetition: Call[] = [
    { start: 3, length: 4, rows: [] },
    { start: 7, length: 2, rows: [1] },
    { start: 9, length: 1, rows: [0] },
    { start: 10, length: 1, rows: [0] },
  ];
  assertEquals(runner.calls, [
    { start: 0, length: 4, rows: [] },
    { start: 4, length: 4, rows: [] },
    { start: 8, length: 1, rows: [0] },
    { start: 9, length: 1, rows: [0] },
    ...repetition,
    ...repetition,
  ]);
  assertEquals(runner.openSequences, 0);
});

Deno.test("measure: keeps what was measured before it is stopped, and frees the pages", async () => {
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

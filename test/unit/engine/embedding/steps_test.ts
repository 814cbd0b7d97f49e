/** Tests the scheduling of embedding steps next to steps that generate. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { Embedder } from "../../../../src/engine/embedding/embedder.ts";
import { EmbeddingTask } from "../../../../src/engine/embedding/embedding_task.ts";
import type { Pooling } from "../../../../src/engine/embedding/pooling.ts";
import { Generation } from "../../../../src/engine/generation/generation.ts";
import { ForgeError } from "../../../../src/errors.ts";
import { Scheduler } from "../../../../src/engine/schedule/scheduler.ts";
import type { Progress } from "../../../../src/engine/schedule/sequence.ts";
import type { Checkpoint } from "../../../../src/mod.ts";
import {
  FAKE_VOCABULARY,
  fakeAnswer,
  type FakeOptions,
  fakeRequest,
  FakeRunner,
  noTokenizer,
} from "../../../support/fake_runner.ts";

class Bench {
  readonly runner: FakeRunner;
  readonly scheduler: Scheduler;

  constructor(options: Partial<FakeOptions> = {}) {
    this.runner = new FakeRunner({ nPages: 100, ...options });
    this.scheduler = new Scheduler(this.runner);
  }

  async generate(prompt: readonly number[], maxTokens: number): Promise<number[]> {
    const tokens: number[] = [];
    const request = fakeRequest(prompt, maxTokens);
    for await (const { token } of new Generation(noTokenizer, request).run(this.scheduler)) {
      if (token !== undefined) tokens.push(token);
    }
    return tokens;
  }

  async embed(
    tokens: readonly number[],
    pooling: Pooling = "last",
    isWhole = false,
  ): Promise<number> {
    return (await new EmbeddingTask(tokens, pooling, isWhole).run(this.scheduler))[0]!;
  }

  /** Number of tokens of each chunk, for each run that embedded. */
  get kinds(): string[] {
    return this.runner.runs.map((chunks, i) => {
      const sizes = chunks.map(({ tokens }) => tokens.length).join("+");
      return `${this.runner.embedded.has(i) ? "e" : "g"}${sizes}`;
    });
  }

  async end(): Promise<void> {
    await this.scheduler.idle();
    this.runner.checkPages();
    assertEquals(this.runner.pages.freePages, this.runner.pages.nPages);
  }
}

function numbers(length: number, first: number): number[] {
  return Array.from({ length }, (_, i) => first + i);
}

/** Returns the fake state after the last of some tokens. */
function stateOf(tokens: readonly number[]): number {
  return fakeAnswer(tokens, 1)[0]!;
}

Deno.test("texts are embedded together, long ones in chunks", async () => {
  const bench = new Bench({ maxTokens: 10 });
  const texts = [numbers(3, 0), numbers(12, 100), numbers(4, 300)];
  const states = await Promise.all(texts.map((text) => bench.embed(text)));
  assertEquals(states, texts.map(stateOf));
  assertEquals(bench.kinds, ["e3+4+3", "e9"]);
  await bench.end();
});

Deno.test("texts of bidirectional models are never cut, even if each fills a step", async () => {
  const bench = new Bench({ maxTokens: 10 });
  const texts = [numbers(3, 0), numbers(10, 100), numbers(4, 300), numbers(10, 400)];
  await Promise.all(texts.map((text) => bench.embed(text, "mean", true)));
  assertEquals(bench.kinds, ["e3+4", "e10", "e10"]);
  const first = await bench.embed(numbers(5, 0), "cls", true);
  assertEquals(first, stateOf(numbers(1, 0)));
  assertEquals(bench.kinds.at(-1), "e5");
  await bench.end();
});

Deno.test("steps that embed and steps that generate alternate", async () => {
  const bench = new Bench({ maxTokens: 8 });
  const prompt = numbers(3, 500);
  const text = numbers(40, 0);
  const [answer, other, state] = await Promise.all([
    bench.generate(prompt, 6),
    bench.generate(numbers(2, 700), 6),
    bench.embed(text),
  ]);
  assertEquals([answer, other.length, state], [fakeAnswer(prompt, 6), 6, stateOf(text)]);
  assertEquals(bench.kinds.slice(0, 6), ["g3+2", "e8", "g1+1", "e8", "g1+1", "e8"]);
  assertEquals(bench.kinds.filter((kind) => kind.startsWith("e")).length, 5);
  await bench.end();
});

Deno.test("the mean covers every token despite chunks and preemption", async () => {
  // Too few pages for both texts, so that one is preempted and restarts.
  const bench = new Bench({ nPages: 6, maxTokens: 2, maxOutputs: 1 });
  const texts = [numbers(16, 0), numbers(14, 400)];
  const generated = bench.generate(numbers(4, 900), 8);
  const means = await Promise.all(texts.map((text) => bench.embed(text, "mean")));
  const expected = texts.map((text) => {
    const states = text.map((_, i) => stateOf(text.slice(0, i + 1)));
    return Math.fround(states.reduce((sum, state) => sum + state, 0) / text.length);
  });
  assertEquals(means, expected);
  assert(bench.scheduler.preemptions > 0);
  assertEquals(await generated, fakeAnswer(numbers(4, 900), 8));
  await bench.end();
});

Deno.test("a request after many texts waits for two of their steps, not for all", async () => {
  const bench = new Bench({ maxTokens: 8, maxSequences: 8 });
  const { limits } = bench.runner;
  const shape = { vocabSize: FAKE_VOCABULARY, hiddenSize: 1, contextLength: 400, limits };
  const checkpoint = { metadata: new Map() } as unknown as Checkpoint;
  const embedder = new Embedder(bench.scheduler, noTokenizer, checkpoint, shape);
  const texts = Array.from({ length: 30 }, (_, i) => Int32Array.from(numbers(8, 10 * i)));
  const embedded = embedder.embed(texts, { normalize: false });
  while (bench.kinds.length < 2) await Promise.resolve();
  assertEquals(await bench.generate(numbers(3, 900), 2), fakeAnswer(numbers(3, 900), 2));
  assert(bench.kinds.length < 10, String(bench.kinds));
  const states = (await embedded).map(({ vector }) => vector[0]!);
  assertEquals(states, texts.map((text) => stateOf([...text])));
  // Steps still take as many texts as fit.
  assertEquals(bench.kinds.filter((kind) => kind.startsWith("e")), Array(30).fill("e8"));
  await bench.end();
});

Deno.test("a model with a classification head embeds with a pooling of choice alone", async () => {
  const bench = new Bench();
  const { limits } = bench.runner;
  const shape = { vocabSize: FAKE_VOCABULARY, hiddenSize: 1, contextLength: 400, limits };
  const checkpoint = { path: "m", metadata: new Map() } as unknown as Checkpoint;
  const model = { classifier: { layers: [], pooling: "cls" } } as const;
  const embedder = new Embedder(bench.scheduler, noTokenizer, checkpoint, shape, model);
  const texts = [Int32Array.from(numbers(8, 10))];
  const error = await assertRejects(() => embedder.embed(texts, {}), ForgeError);
  assertEquals(error.code, "unsupported");
  const [embedded] = await embedder.embed(texts, { pooling: "last", normalize: false });
  assertEquals(embedded, { vector: Float32Array.of(stateOf(numbers(8, 10))), tokens: 8 });
  await bench.end();
});

Deno.test("a failed embedding step fails only its own texts", async () => {
  const bench = new Bench();
  const prompt = numbers(3, 900);
  bench.runner.onRun = (chunks) => {
    if (chunks[0]!.tokens[0] === prompt[0] || chunks[0]!.start > 0) {
      return Promise.resolve(undefined);
    }
    return Promise.reject(new ForgeError("device", "no memory"));
  };
  const [answer, ...embedded] = await Promise.allSettled([
    bench.generate(prompt, 5),
    bench.embed(numbers(4, 0)),
    bench.embed(numbers(4, 50)),
  ]);
  assertEquals(answer, { status: "fulfilled", value: fakeAnswer(prompt, 5) });
  for (const each of embedded) {
    assertEquals([each.status, each.status === "rejected" && each.reason.message], [
      "rejected",
      "no memory",
    ]);
  }
  await bench.end();
});

Deno.test("first-token pooling computes only the first token", async () => {
  const bench = new Bench();
  assertEquals(await bench.embed(numbers(9, 30), "cls"), stateOf([30]));
  assertEquals(bench.kinds, ["e1"]);
  await bench.end();
});

Deno.test("embedding does not evict the prefixes of chats", async () => {
  const bench = new Bench({ nPages: 8 });
  const prompt = numbers(12, 0);
  await bench.generate(prompt, 1);
  for (let i = 0; i < 5; i++) await bench.embed(numbers(12, 100 * (i + 1)));
  const before = bench.kinds.length;
  await bench.generate([...prompt, 77], 1);
  assertEquals(bench.kinds.slice(before), ["g1"]);
  await bench.end();
});

Deno.test("a text that fails with others of its step is reported, whichever it is", async () => {
  const shape = { vocabSize: 2000, hiddenSize: 1, contextLength: 100 };
  const limits = { maxTokens: 8, maxOutputs: 8, maxSequences: 2, maxBranches: 0, maxTop: 0 };
  const pool = (nTexts: number, failing: number) => {
    // Completes the texts submitted so far together, as a step does.
    const waiting: EmbeddingTask[] = [];
    const submit = (task: unknown) => {
      if (waiting.push(task as EmbeddingTask) === 1) setTimeout(complete);
    };
    const complete = () => {
      for (const task of waiting.splice(0)) {
        if (task.isEnded) continue;
        if (task.tokens.at(0) === failing) task.fail(new ForgeError("bad_model", "NaN"));
        else task.accept(progressOf(task));
      }
    };
    const embedder = new Embedder({ submit }, noTokenizer, {} as Checkpoint, { ...shape, limits });
    const texts = Array.from({ length: nTexts }, (_, i) => Int32Array.of(i));
    return embedder.pool(texts, "last", undefined, undefined);
  };
  for (let nTexts = 1; nTexts < 8; nTexts++) {
    const states = await pool(nTexts, -1);
    assertEquals(states, Array.from({ length: nTexts }, (_, i) => Float32Array.of(i)));
    for (let failing = 0; failing < nTexts; failing++) {
      await assertRejects(() => pool(nTexts, failing), ForgeError, "NaN");
    }
  }
});

/** Returns the result of a task of one token: the token as its state. */
function progressOf({ tokens }: EmbeddingTask): Progress<Float32Array> {
  const results = [Float32Array.of(tokens.at(0)!)];
  const rest = { ahead: [], drafted: 0, pages: [], began: 0, ended: 1 };
  const read = () => {
    throw new Error("not read");
  };
  return { computed: 1, results, ...rest, readLogits: read, readState: read };
}

Deno.test("a text has outputs where its pooling reads states, which are copied", async () => {
  const rows = (pooling: Pooling, isWhole: boolean, start: number, end: number) =>
    new EmbeddingTask(numbers(5, 0), pooling, isWhole).outputs(start, end).map(({ row }) => row);
  assertEquals([rows("last", false, 0, 3), rows("last", false, 3, 5)], [[], [1]]);
  assertEquals([rows("last", true, 0, 5), rows("cls", true, 0, 5)], [[4], [0]]);
  assertEquals([rows("cls", false, 0, 1), rows("mean", false, 2, 5)], [[0], [0, 1, 2]]);
  const result = async (...states: readonly Float32Array[]) => {
    const task = new EmbeddingTask(numbers(states.length, 0), states.length > 1 ? "mean" : "last");
    const done = task.run({ submit: () => {} });
    try {
      task.accept({ computed: states.length, results: states } as Progress<Float32Array>);
    } catch (error) {
      task.fail(error);
    }
    states[0]!.fill(9);
    return await done;
  };
  assertEquals(await result(Float32Array.of(1, 2)), Float32Array.of(1, 2));
  assertEquals(await result(Float32Array.of(1, 2), Float32Array.of(2, 6)), Float32Array.of(1.5, 4));
  for (const bad of [NaN, Infinity]) {
    const error = await assertRejects(() => result(Float32Array.of(1, bad)), ForgeError);
    assertEquals(error.code, "bad_model");
  }
});

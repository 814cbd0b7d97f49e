/** Tests the composition of steps, preemption, back-pressure and failures. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { Generation } from "../../../../src/engine/generation/generation.ts";
import type {
  GenerationEnd,
  GenerationRequest,
  Piece,
} from "../../../../src/engine/generation/request.ts";
import type { PrefixCache } from "../../../../src/engine/cache/prefix_cache.ts";
import { Sequence, type Task } from "../../../../src/engine/schedule/sequence.ts";
import { planStep } from "../../../../src/engine/schedule/step_plan.ts";
import { WaitingLine } from "../../../../src/engine/schedule/waiting_line.ts";
import { TokenList } from "../../../../src/engine/token_list.ts";
import { Scheduler } from "../../../../src/engine/schedule/scheduler.ts";
import { StepPace } from "../../../../src/engine/schedule/ahead.ts";
import { lastLogits, scoreTokens } from "../../../../src/engine/generation/score.ts";
import type { ModelDrafter } from "../../../../src/engine/speculation/model_drafter.ts";
import { Speculator } from "../../../../src/engine/speculation/speculator.ts";
import { ForgeError } from "../../../../src/errors.ts";
import {
  fakeAnswer,
  type FakeOptions,
  fakeRequest,
  FakeRunner,
  noTokenizer,
} from "../../../support/fake_runner.ts";

function turn(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

interface Generated {
  readonly tokens: number[];
  readonly end: GenerationEnd;
}

class Bench {
  readonly runner: FakeRunner;
  readonly scheduler: Scheduler;

  constructor(options: FakeOptions) {
    this.runner = new FakeRunner(options);
    this.scheduler = new Scheduler(this.runner, undefined, new StepPace(1));
  }

  async generate(
    prompt: readonly number[],
    maxTokens: number,
    rest: Partial<GenerationRequest> = {},
  ): Promise<Generated> {
    const tokens: number[] = [];
    const request = fakeRequest(prompt, maxTokens, rest);
    for await (const { token, end } of new Generation(noTokenizer, request).run(this.scheduler)) {
      if (token !== undefined) tokens.push(token);
      if (end !== undefined) return { tokens, end };
    }
    throw new Error("no end");
  }

  /** Chunk lengths of each step so far, joined by "+". */
  get steps(): string[] {
    return this.runner.runs.map((chunks) => chunks.map(({ tokens }) => tokens.length).join("+"));
  }

  /** Checks that all pages are released. */
  async end(): Promise<void> {
    await this.scheduler.idle();
    this.runner.checkPages();
    assertEquals(this.runner.pages.freePages, this.runner.pages.nPages);
  }
}

function prompt(length: number, first: number): number[] {
  return Array.from({ length }, (_, i) => first + i);
}

Deno.test("simultaneous requests are computed together", async () => {
  const bench = new Bench({ nPages: 100 });
  const prompts = [prompt(3, 0), prompt(5, 100), prompt(2, 200)];
  const generated = await Promise.all(prompts.map((prompt) => bench.generate(prompt, 3)));
  assertEquals(
    generated.map(({ tokens }) => tokens),
    prompts.map((prompt) => fakeAnswer(prompt, 3)),
  );
  assertEquals(bench.steps, ["3+5+2", "1+1+1", "1+1+1"]);
  await bench.end();
});

Deno.test("sequences join and leave at every step", async () => {
  const bench = new Bench({ nPages: 100 });
  const long = bench.generate(prompt(2, 0), 6);
  while (bench.steps.length < 2) await Promise.resolve();
  const short = bench.generate(prompt(3, 100), 2);
  await Promise.all([long, short]);
  assertEquals(bench.steps[0], "2");
  assert(bench.steps.includes("1+3") && bench.steps.at(-1) === "1", String(bench.steps));
  await bench.end();
});

Deno.test("a long prompt runs in chunks next to decoding sequences", async () => {
  const bench = new Bench({ nPages: 100, maxTokens: 10 });
  const first = bench.generate(prompt(2, 0), 6);
  while (bench.steps.length < 2) await Promise.resolve();
  const prefilled: number[] = [];
  const second = bench.generate(prompt(25, 100), 1, { onPrefill: (done) => prefilled.push(done) });
  await Promise.all([first, second]);
  assertEquals(bench.steps.filter((step) => step === "1+9").length, 2);
  assertEquals(bench.steps.filter((step) => step === "1+7").length, 1);
  assertEquals(prefilled, [9, 18]);
  await bench.end();
});

Deno.test("a step has at most maxSequences sequences; the others wait", async () => {
  const bench = new Bench({ nPages: 100, maxSequences: 2 });
  const prompts = [1, 2, 3, 4, 5].map((i) => prompt(3, 100 * i));
  const generated = await Promise.all(prompts.map((prompt, i) => bench.generate(prompt, 2 + i)));
  generated.forEach(({ tokens }, i) => assertEquals(tokens, fakeAnswer(prompts[i]!, 2 + i)));
  assert(bench.runner.runs.every((chunks) => chunks.length <= 2));
  await bench.end();
});

Deno.test("a cached prefix is not computed again", async () => {
  const bench = new Bench({ nPages: 100 });
  const shared = prompt(10, 0);
  assertEquals((await bench.generate([...shared, 500], 3)).end.cachedPromptTokens, 0);
  // Two whole pages, and two tokens of a third page, which is copied.
  const second = await bench.generate([...shared, 600, 601], 3);
  assertEquals([second.end.cachedPromptTokens, bench.runner.copies], [10, 1]);
  assertEquals(second.tokens, fakeAnswer([...shared, 600, 601], 3));
  // The last token of a prompt is always computed.
  const again = await bench.generate([...shared, 500], 3);
  assertEquals([again.end.cachedPromptTokens, bench.steps.slice(6)], [10, ["1", "1", "1"]]);
  await bench.end();
});

Deno.test("an answer is a prefix too, and a turn computes only its new tokens", async () => {
  const bench = new Bench({ nPages: 100 });
  const first = prompt(6, 0);
  const { tokens } = await bench.generate(first, 9);
  const next = [...first, ...tokens, 700, 701, 702];
  const { end } = await bench.generate(next, 2);
  // The last token of the answer was sampled, but not computed.
  assertEquals(end.cachedPromptTokens, first.length + tokens.length - 1);
  await bench.end();
});

Deno.test("two requests with the same prefix compute it once", async () => {
  const bench = new Bench({ nPages: 200, maxTokens: 30 });
  const shared = prompt(70, 0);
  const prompts = [[...shared, 500], [...shared, 600], [...shared, 500], prompt(5, 800)];
  const generated = await Promise.all(prompts.map((prompt) => bench.generate(prompt, 4)));
  generated.forEach(({ tokens }, i) => assertEquals(tokens, fakeAnswer(prompts[i]!, 4)));
  assertEquals(generated.map(({ end }) => end.cachedPromptTokens), [0, 70, 70, 0]);
  // A request without a shared prefix does not wait.
  assertEquals(bench.steps[0], "5+25");
  await bench.end();
});

Deno.test("a request waits for no prefix of another adapter, which it could not use", async () => {
  const bench = new Bench({ nPages: 200, maxTokens: 100 });
  const shared = prompt(70, 0);
  const answers = await Promise.all(
    [undefined, "a", "b", "a"].map((key) => {
      const adapters = key === undefined ? undefined : { key, scales: Float32Array.of(1) };
      return bench.generate(shared, 4, { adapters });
    }),
  );
  for (const { tokens } of answers) assertEquals(tokens, fakeAnswer(shared, 4));
  assertEquals(answers.map(({ end }) => end.cachedPromptTokens), [0, 0, 0, 69]);
  // The second sequence fills the first step, next to the first one.
  assertEquals(bench.steps[0], "70+30");
  await bench.end();
});

Deno.test("if the request that computes a shared prefix is stopped, another computes it", async () => {
  const bench = new Bench({ nPages: 200, maxTokens: 10 });
  const shared = prompt(70, 0);
  const controller = new AbortController();
  const first = bench.generate([...shared, 500], 4, { signal: controller.signal });
  const second = bench.generate([...shared, 600], 4);
  while (bench.steps.length < 2) await Promise.resolve();
  controller.abort();
  assertEquals((await first).end.finishReason, "cancelled");
  const { tokens, end } = await second;
  assertEquals(tokens, fakeAnswer([...shared, 600], 4));
  assert(end.cachedPromptTokens >= 20, `${end.cachedPromptTokens}`);
  await bench.end();
});

Deno.test("when pages run out the last sequence is preempted and later gives the same tokens", async () => {
  // Each needs 6 of 8 pages in the end: both fit at first, but not to their ends.
  const bench = new Bench({ nPages: 8 });
  const [a, b] = [prompt(8, 0), prompt(8, 100)];
  const [first, second] = await Promise.all([bench.generate(a, 14), bench.generate(b, 14)]);
  assertEquals([first.tokens, second.tokens], [fakeAnswer(a, 14), fakeAnswer(b, 14)]);
  assert(bench.scheduler.preemptions > 0, "no sequence was preempted");
  // The first sequence is in every step until its answer ends.
  for (const [i, token] of first.tokens.slice(0, -1).entries()) {
    const isPart = bench.runner.runs[i + 1]!.some(({ tokens }) => tokens.at(-1) === token);
    assert(isPart, `the first sequence is not part of step ${i + 1}`);
  }
  await bench.end();
});

Deno.test("a preempted sequence continues before later ones begin", async () => {
  const bench = new Bench({ nPages: 8 });
  const order: number[] = [];
  await Promise.all([prompt(8, 0), prompt(8, 100), prompt(20, 200)].map(async (each, i) => {
    await bench.generate(each, i < 2 ? 14 : 2);
    order.push(i);
  }));
  assert(bench.scheduler.preemptions > 0, "no sequence was preempted");
  assertEquals(order, [0, 1, 2]);
  await bench.end();
});

Deno.test("a sequence does not take the page that an active one needs next", async () => {
  const bench = new Bench({ nPages: 5 });
  const [a, b] = [prompt(3, 0), prompt(16, 100)];
  const first = bench.generate(a, 6);
  while (bench.steps.length < 1) await Promise.resolve();
  // All four free pages hold its prompt, but the first sequence soon needs one of them.
  const second = bench.generate(b, 1);
  assertEquals((await first).tokens, fakeAnswer(a, 6));
  assertEquals((await second).tokens, fakeAnswer(b, 1));
  assertEquals(bench.scheduler.preemptions, 0);
  await bench.end();
});

Deno.test("pages of ended sequences are evicted, the least recently used first", async () => {
  const bench = new Bench({ nPages: 5 });
  const [a, b, c] = [prompt(8, 0), prompt(8, 100), prompt(12, 200)];
  for (const each of [a, b, a, c]) await bench.generate(each, 1);
  // A was used after B, so C evicted the pages of B.
  assertEquals((await bench.generate(a, 1)).end.cachedPromptTokens, 7);
  assertEquals((await bench.generate(b, 1)).end.cachedPromptTokens, 0);
  await bench.end();
});

Deno.test("a request that can never fit is rejected, and the others continue", async () => {
  const bench = new Bench({ nPages: 4 });
  const [long, grows, fits] = await Promise.allSettled([
    bench.generate(prompt(17, 0), 1),
    bench.generate(prompt(4, 100), 20),
    bench.generate(prompt(4, 200), 2),
  ]);
  assert(long.status === "rejected" && grows.status === "rejected" && fits.status === "fulfilled");
  assert(long.reason instanceof ForgeError);
  assertEquals(
    [long.reason.code, long.reason.message],
    ["bad_input", "a sequence of 17 tokens does not fit the KV cache, which holds 16"],
  );
  await bench.end();
});

Deno.test("a request waits for pages of a prompt that is being loaded, and grows after it", async () => {
  for (const nSlots of [undefined, 1]) {
    const bench = new Bench({ nPages: 4, nSlots });
    const held = bench.runner.newSequence();
    assert(held.reserve(8));
    let isDone = false;
    const done = Promise.allSettled([
      bench.generate(prompt(6, 0), 8),
      bench.generate(prompt(12, 100), 2),
      bench.generate(prompt(17, 200), 1),
    ]).finally(() => isDone = true);
    await turn();
    await bench.scheduler.idle();
    assert(!isDone);
    held.release();
    const [grows, waits, long] = await done;
    assert(grows.status === "fulfilled" && waits.status === "fulfilled");
    assertEquals(grows.value.tokens, fakeAnswer(prompt(6, 0), 8));
    assertEquals(waits.value.tokens, fakeAnswer(prompt(12, 100), 2));
    assertEquals(long.status, "rejected");
    await bench.end();
  }
});

Deno.test("a slow reader pauses only its own sequence", async () => {
  const bench = new Bench({ nPages: 100 });
  const slow = new Generation(noTokenizer, fakeRequest(prompt(2, 0), 200)).run(bench.scheduler);
  await slow.next();
  await bench.generate(prompt(2, 100), 100);
  await bench.scheduler.idle();
  const computed =
    bench.runner.runs.filter((chunks) =>
      chunks.some(({ tokens, start }) => start === 0 ? tokens[0] === 0 : chunks.length === 2)
    ).length;
  assert(computed < 40, `${computed} tokens ahead of the reader`);
  const tokens: number[] = [fakeAnswer(prompt(2, 0), 1)[0]!];
  for await (const { token } of slow) if (token !== undefined) tokens.push(token);
  assertEquals(tokens, fakeAnswer(prompt(2, 0), 200));
  await bench.end();
});

Deno.test("an answer gets its pages while its reader leaves another answer unread", async () => {
  const bench = new Bench({ nPages: 14, maxSequences: 1 });
  const outer = prompt(8, 0);
  const tokens: number[] = [];
  const pieces = new Generation(noTokenizer, fakeRequest(outer, 40)).run(bench.scheduler);
  for await (const { token } of pieces) {
    if (token === undefined) continue;
    tokens.push(token);
    if (tokens.length % 10 !== 1) continue;
    const inner = prompt(20, 100 * tokens.length);
    assertEquals((await bench.generate(inner, 30)).tokens, fakeAnswer(inner, 30));
  }
  assertEquals(tokens, fakeAnswer(outer, 40));
  await bench.end();
});

Deno.test("paused sequences at the front of the queue do not block the others", async () => {
  // Each holds at least 9 pages by the time its slow reader pauses it, so nearly all are preempted.
  const bench = new Bench({ nPages: 20, maxSequences: 2 });
  const unread = Array.from(
    { length: 12 },
    (_, i) => new Generation(noTokenizer, fakeRequest(prompt(2, 20 * i), 60)).run(bench.scheduler),
  );
  const first = await Promise.all(unread.map((pieces) => pieces.next()));
  assertEquals(first.length, 12);
  await bench.scheduler.idle();
  const { tokens: generated } = await bench.generate(prompt(8, 500), 6);
  assertEquals(generated, fakeAnswer(prompt(8, 500), 6));
  // The unread answers continue unchanged.
  for (const [i, pieces] of unread.entries()) {
    const tokens = [(first[i]!.value as Piece).token];
    for await (const { token } of pieces) if (token !== undefined) tokens.push(token);
    assertEquals(tokens, fakeAnswer(prompt(2, 20 * i), 60));
  }
  await bench.end();
});

Deno.test("an error of one output fails only its own sequence", async () => {
  const bench = new Bench({ nPages: 100, maxSequences: 1 });
  const bad = new ForgeError("bad_model", "NaN");
  bench.runner.onRun = ([chunk]) => Promise.resolve(chunk?.tokens[0] === 100 ? bad : undefined);
  const [first, second, third] = await Promise.allSettled([
    bench.generate(prompt(2, 0), 3),
    bench.generate(prompt(2, 100), 3),
    bench.generate(prompt(2, 200), 3),
  ]);
  assert(second.status === "rejected");
  assertEquals([first.status, second.reason, third.status], ["fulfilled", bad, "fulfilled"]);
  await bench.end();
});

Deno.test("a device failure fails all sequences, and later ones may succeed", async () => {
  const bench = new Bench({ nPages: 100, maxSequences: 2 });
  const failure = new ForgeError("device", "out of memory");
  bench.runner.onRun = () => Promise.reject(failure);
  const all = await Promise.allSettled([0, 100, 200].map((at) => bench.generate(prompt(2, at), 3)));
  for (const one of all) assert(one.status === "rejected" && one.reason === failure);
  bench.runner.onRun = () => Promise.resolve(undefined);
  assertEquals((await bench.generate(prompt(2, 0), 3)).tokens, fakeAnswer(prompt(2, 0), 3));
  await bench.end();
});

Deno.test("a run is stopped only if all its sequences are cancelled", async () => {
  const bench = new Bench({ nPages: 100 });
  const run = Promise.withResolvers<undefined>();
  bench.runner.onRun = () => run.promise;
  const controllers = [new AbortController(), new AbortController()];
  const both = controllers.map(({ signal }, i) =>
    bench.generate(prompt(2, 100 * i), 3, { signal })
  );
  await turn();
  controllers[0]!.abort();
  // The reader gets the end at once.
  assertEquals((await both[0]!).end.finishReason, "cancelled");
  assertEquals(bench.runner.cancels, 0);
  controllers[1]!.abort();
  assertEquals(bench.runner.cancels, 1);
  const { end, tokens } = await both[1]!;
  assertEquals([end.finishReason, end.completionTokens, tokens], ["cancelled", 0, []]);
  await bench.end();
});

Deno.test("a sequence that ends while tokens are drafted is not computed, and is forgotten", async () => {
  const runner = new FakeRunner({ nPages: 100 });
  const controllers = [new AbortController(), new AbortController()];
  const forgotten: number[] = [];
  const model: ModelDrafter = {
    rate: () => 0.9,
    cost: () => 0,
    lag: () => 0,
    draft: async () => {
      await turn();
      controllers[0]!.abort();
    },
    cancel() {},
    forget: (tokens) => void forgotten.push(tokens.at(0)!),
  };
  const speculator = new Speculator({ length: 1, model });
  const scheduler = new Scheduler(runner, speculator, new StepPace(1));
  const prompts = [prompt(2, 0), prompt(2, 100)];
  const [, second] = await Promise.all(prompts.map(async (each, i) => {
    const tokens: number[] = [];
    const request = fakeRequest(each, 4, { signal: controllers[i]!.signal });
    for await (const { token } of new Generation(noTokenizer, request).run(scheduler)) {
      if (token !== undefined) tokens.push(token);
    }
    return tokens;
  }));
  assertEquals(second, fakeAnswer(prompts[1]!, 4));
  await scheduler.idle();
  assertEquals(runner.runs.map((chunks) => chunks.length), [2, 1, 1, 1]);
  assertEquals(forgotten.sort(), [0, 100]);
});

Deno.test("a waiting sequence can be stopped", async () => {
  const bench = new Bench({ nPages: 100, maxSequences: 1 });
  const controller = new AbortController();
  const first = bench.generate(prompt(2, 0), 5);
  const second = bench.generate(prompt(2, 100), 5, { signal: controller.signal });
  controller.abort();
  assertEquals((await second).end.finishReason, "cancelled");
  assertEquals((await first).tokens.length, 5);
  assertEquals(bench.runner.runs.flat().filter(({ tokens }) => tokens[0] === 100), []);
  await bench.end();
});

Deno.test("an action runs between two steps", async () => {
  const bench = new Bench({ nPages: 100 });
  const telling = bench.generate(prompt(2, 0), 20);
  let actions = 0;
  while (actions < 3) {
    await bench.scheduler.betweenSteps(() => {
      assert(!bench.runner.isRunning);
      actions++;
    });
  }
  await telling;
  const failing = () => {
    throw new Error("the action's own");
  };
  await assertRejects(() => bench.scheduler.betweenSteps(failing), Error, "the action's own");
  await bench.end();
});

Deno.test("closing a scheduler fails all sequences and rejects new ones", async () => {
  const bench = new Bench({ nPages: 100 });
  bench.runner.onRun = () => new Promise(() => {});
  const error = new ForgeError("device", "closed");
  const all = Promise.allSettled([
    bench.generate(prompt(2, 0), 3),
    bench.generate(prompt(2, 100), 3),
  ]);
  await turn();
  bench.scheduler.close(error);
  for (const one of await all) assert(one.status === "rejected" && one.reason === error);
  await assertRejects(() => bench.generate(prompt(2, 0), 3), ForgeError, "closed");
  await assertRejects(() => bench.scheduler.betweenSteps(() => 1), ForgeError, "closed");
  await bench.end();
});

Deno.test("scores and logits share steps with generations", async () => {
  const bench = new Bench({ nPages: 100, maxTokens: 12, maxOutputs: 4 });
  const tokens = prompt(11, 300);
  const [generated, scores, logits] = await Promise.all([
    bench.generate(prompt(3, 0), 3),
    scoreTokens(bench.scheduler, tokens),
    lastLogits(bench.scheduler, tokens),
  ]);
  assertEquals(generated.tokens.length, 3);
  assertEquals(scores, new Float32Array(10).fill(-1));
  assertEquals(logits.length, 1);
  // Each token is scored, whatever is cached.
  assertEquals(await scoreTokens(bench.scheduler, tokens), scores);
  assertEquals(await scoreTokens(bench.scheduler, [1]), new Float32Array(0));
  // Both have more outputs than a step.
  const both = [prompt(11, 500), prompt(9, 600)];
  const scored = await Promise.all(both.map((tokens) => scoreTokens(bench.scheduler, tokens)));
  assertEquals(scored.map(({ length }) => length), [10, 8]);
  const aborted = AbortSignal.abort();
  const stopped = () => scoreTokens(bench.scheduler, tokens, aborted);
  assertEquals((await assertRejects(stopped, ForgeError)).code, "cancelled");
  const later = new AbortController();
  const scoring = scoreTokens(bench.scheduler, tokens, later.signal);
  later.abort();
  assertEquals((await assertRejects(() => scoring, ForgeError)).code, "cancelled");
  await bench.end();
});

Deno.test("a sequence waits for a shared prefix while another one computes it, and no longer", () => {
  const prefix = Array.from({ length: 64 }, (_, i) => i);
  const sequence = (arrival: number, ...rest: number[]) => {
    const tokens = new TokenList([...prefix, ...rest]);
    const task = { tokens, mayReuse: true, isEnded: false, isPaused: false };
    const cache = { computed: 0, publishedAt: (count: number) => count };
    const made = new Sequence(
      task as unknown as Task,
      cache as unknown as Sequence["cache"],
      arrival,
    );
    return { made, task, cache };
  };
  const known = { match: () => ({ length: 0 }) } as unknown as PrefixCache;
  const line = new WaitingLine(known, 2);
  const leader = sequence(0, 100), follower = sequence(1, 101), other = sequence(2, 102);
  line.add(other.made);
  line.add(follower.made);
  assertEquals([...line], [follower.made, other.made], "in order of arrival");
  assertEquals(line.next([leader.made]), undefined);
  leader.cache.computed = 64;
  assertEquals(line.next([leader.made]), follower.made, "the prefix is computed");
  // Preempted while its reader is slow, the leader computes nothing for a long time.
  leader.cache.computed = 0;
  assertEquals(line.next([leader.made]), undefined);
  leader.task.isPaused = true;
  line.add(leader.made);
  assertEquals([...line], [leader.made, follower.made, other.made]);
  assertEquals(line.next([]), follower.made);
  line.remove(leader.made);
  assertEquals(line.next([leader.made]), undefined);
  leader.task.isEnded = true;
  follower.task.isEnded = true;
  assertEquals(line.next([]), other.made, "the follower ended, too, and is dropped");
  assertEquals([...line], [other.made]);
  assertEquals([line.takeAll(), line.length], [[other.made], 0]);
});

Deno.test("a sequence waits only for a prefix whose computation would take long", () => {
  const tokens = Array.from({ length: 64 }, (_, i) => i);
  const waits = (
    options: {
      computed?: number;
      cached?: number;
      length?: number;
      leads?: boolean;
      follows?: boolean;
    },
  ) => {
    const { computed = 0, cached = 0, length = 65, leads = true, follows = true } = options;
    const cache = { computed, publishedAt: (count: number) => count };
    const made = [100, 101].map((last, i) => {
      const list = new TokenList([...tokens, last].slice(0, i === 0 ? 65 : length));
      const mayReuse = i === 0 ? leads : follows;
      const task = { tokens: list, mayReuse, isEnded: false, isPaused: false };
      const own = i === 0 ? cache : { ...cache, computed: 0 };
      return new Sequence(task as unknown as Task, own as unknown as Sequence["cache"], i);
    });
    const known = { match: () => ({ length: cached }) } as unknown as PrefixCache;
    const line = new WaitingLine(known, 2);
    line.add(made[1]!);
    return line.next([made[0]!]) === undefined;
  };
  assertEquals([waits({}), waits({ leads: false }), waits({ follows: false })], [
    true,
    false,
    false,
  ]);
  assertEquals([waits({ computed: 32 }), waits({ computed: 33 })], [true, false]);
  assertEquals([waits({ cached: 32 }), waits({ cached: 33 })], [true, false]);
  // The last token of a sequence is computed in any case.
  assertEquals([waits({ length: 33 }), waits({ length: 32 })], [true, false]);
});

Deno.test("as many waiting sequences are passed over as the line reaches", () => {
  const prefix = Array.from({ length: 64 }, (_, i) => i);
  const sequence = (arrival: number, tokens: readonly number[], isPaused = false) => {
    const task = { tokens: new TokenList(tokens), mayReuse: true, isEnded: false, isPaused };
    const cache = { computed: 0, publishedAt: (count: number) => count };
    return new Sequence(task as unknown as Task, cache as unknown as Sequence["cache"], arrival);
  };
  const known = { match: () => ({ length: 0 }) } as unknown as PrefixCache;
  for (const [reach, isFound] of [[2, false], [3, true]] as const) {
    const line = new WaitingLine(known, reach);
    for (const i of [1, 2]) line.add(sequence(i, [...prefix, 100 + i]));
    line.add(sequence(3, [7, 8], true));
    const other = sequence(4, [5, 6]);
    line.add(other);
    assertEquals(line.next([sequence(0, prefix)]), isFound ? other : undefined);
  }
});

Deno.test("a step takes decoding sequences first, and no more than its limits", () => {
  interface Planned {
    readonly length: number;
    readonly computed?: number;
    readonly maxChunk?: number;
    readonly scoresAll?: boolean;
    readonly isWhole?: boolean;
  }
  /** Returns the index and the number of tokens of each chunk. */
  const plan = (all: readonly Planned[], maxTokens = 20, maxOutputs = 20, maxSequences = 4) => {
    const sequences = all.map(({ length, computed = 0, maxChunk = Infinity, ...more }, i) => {
      const kind = { maxOutputs: () => maxOutputs };
      const task = { tokens: { length }, kind, scoresAll: false, isWhole: false, ...more };
      const cache = { computed, maxChunk };
      return new Sequence(task as unknown as Task, cache as unknown as Sequence["cache"], i);
    });
    return planStep(sequences, { maxTokens, maxOutputs, maxSequences }).map(
      ({ sequence, end }) => [sequence.arrival, end - sequence.computed],
    );
  };
  assertEquals(plan([{ length: 9 }, { length: 8 }]), [[1, 8], [0, 9]]);
  assertEquals(plan([{ length: 30 }, { length: 30, computed: 22 }]), [[1, 8], [0, 12]]);
  assertEquals(plan([{ length: 30, maxChunk: 5 }, { length: 12 }]), [[0, 5], [1, 12]]);
  assertEquals(plan([{ length: 5, scoresAll: true }, { length: 9 }]), [[0, 5], [1, 9]]);
  assertEquals(plan([1, 2, 3].map(() => ({ length: 1 })), 20, 20, 2), [[0, 1], [1, 1]]);
  // Each sequence has an output at least, and one that scores has as many as are left.
  const scored = { length: 12, scoresAll: true };
  assertEquals(plan([scored, scored], 20, 6), [[0, 5], [1, 1]]);
  assertEquals(plan([scored, { length: 1 }], 20, 6), [[1, 1], [0, 5]]);
  assertEquals(plan([{ ...scored, length: 3 }, scored], 20, 9), [[0, 3], [1, 6]]);
  assertEquals(plan([{ length: 9 }, scored], 20, 6), [[0, 9], [1, 5]]);
  // A whole text waits for a step that holds all of it.
  const whole = { length: 12, isWhole: true };
  assertEquals(plan([whole, whole, { length: 5 }]), [[2, 5], [0, 12]]);
  assertEquals(plan([{ ...whole, scoresAll: true }], 20, 6), [[0, 12]]);
});

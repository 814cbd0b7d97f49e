import { assert, assertEquals, assertRejects } from "@std/assert";
import type { StepResult } from "../../../../src/backend.ts";
import { Generation } from "../../../../src/engine/generation/generation.ts";
import type { GenerationRequest } from "../../../../src/engine/generation/request.ts";
import { Clock } from "../../../../src/engine/generation/timings.ts";
import type { ConstraintState } from "../../../../src/engine/request/constraint.ts";
import { ForgeError } from "../../../../src/errors.ts";
import type { Progress } from "../../../../src/engine/schedule/sequence.ts";
import { fakeRequest, noTokenizer } from "../../../support/fake_runner.ts";

Deno.test("steps up to the first token are prefill, later ones decode", () => {
  const clock = new Clock();
  clock.begin();
  const start = performance.now();
  clock.tick(start, start + 100, 0);
  clock.tick(start + 100, start + 150, 1);
  clock.tick(start + 150, start + 160, 1);
  clock.tick(start + 160, start + 190, 1);
  clock.addDraft(4, 2);
  clock.addDraft(3, 0);
  const { queueMs, ...timings } = clock.timings(300, 5);
  assert(queueMs >= 0);
  assertEquals(timings, {
    prefillMs: 150,
    decodeMs: 40,
    prefillTokensPerSecond: 2000,
    decodeTokensPerSecond: 100,
    drafted: 7,
    accepted: 2,
  });
});

Deno.test("the first of several steps after the prompt counts as prefill", () => {
  const clock = new Clock();
  clock.tick(0, 40, 4);
  const { queueMs: _, ...timings } = clock.timings(1, 4);
  assertEquals(timings, {
    prefillMs: 10,
    decodeMs: 30,
    prefillTokensPerSecond: 100,
    decodeTokensPerSecond: 100,
    drafted: 0,
    accepted: 0,
  });
});

Deno.test("an answer without tokens has no speed", () => {
  const clock = new Clock();
  clock.tick(0, 100, 0);
  const { queueMs: _, ...timings } = clock.timings(300, 0);
  assertEquals(timings, {
    prefillMs: 100,
    decodeMs: 0,
    prefillTokensPerSecond: 0,
    decodeTokensPerSecond: 0,
    drafted: 0,
    accepted: 0,
  });
});

Deno.test("the queue time ends with the first step", async () => {
  const clock = new Clock();
  clock.begin();
  const first = clock.timings(1, 0).queueMs;
  await new Promise((resolve) => setTimeout(resolve, 5));
  clock.begin();
  assertEquals(clock.timings(1, 0).queueMs, first);
});

Deno.test("of a step that began before a generation joined it, the rest counts", () => {
  const before = performance.now();
  const clock = new Clock();
  clock.begin();
  const after = performance.now();
  clock.tick(before - 1000, after + 50, 1);
  const { queueMs, prefillMs } = clock.timings(1, 1);
  assert(prefillMs >= 50 && prefillMs < 51 + after - before, `${prefillMs}`);
  assert(queueMs + prefillMs <= after + 50 - before + 0.002, `${[queueMs, prefillMs]}`);
});

const PROMPT = [1, 2, 3, 4, 5, 6, 7, 8];

/** A generation whose steps the test reports by hand. */
function manual(maxTokens: number, rest: Partial<GenerationRequest> = {}) {
  const generation = new Generation(noTokenizer, fakeRequest(PROMPT, maxTokens, rest));
  const report = (tokens: readonly number[], progress: Partial<Progress<StepResult>> = {}) =>
    generation.accept({
      computed: generation.tokens.length,
      results: tokens.map((token) => ({ token, logprob: -1, top: [] })),
      ahead: tokens.slice(0, -1),
      drafted: 0,
      pages: [],
      began: 0,
      ended: 0,
      readLogits: () => new Float32Array(0),
      readState: () => [],
      ...progress,
    });
  const end = async () => {
    for await (const { end } of generation.run({ submit: () => {} })) {
      if (end !== undefined) return end;
    }
    throw new Error("no end");
  };
  return { generation, report, end };
}

Deno.test("a generation counts tokens cached at its begin, and accepted ones", async () => {
  const { generation, report, end } = manual(5);
  generation.begin(6);
  // After a preemption, its own pages are cached.
  generation.begin(7);
  const start = Math.ceil(performance.now()) + 1;
  report([20, 21, 22], { drafted: 2, began: start, ended: start + 10 });
  assertEquals(generation.draft.limit, 1, "draft tokens before the last token");
  // Three steps of one run, without draft tokens; the second one ends the text.
  report([23, 24, 25], { began: start + 10, ended: start + 18 });
  assertEquals(generation.draft.limit, 0);
  assertEquals([...generation.tokens.view(8)], [20, 21, 22, 23, 24]);
  const { timings: { queueMs: _, ...timings }, ...rest } = await end();
  assertEquals(rest, {
    finishReason: "length",
    promptTokens: 8,
    cachedPromptTokens: 6,
    completionTokens: 5,
    seed: 1,
  });
  assertEquals(timings, {
    prefillMs: 10,
    decodeMs: 8,
    prefillTokensPerSecond: 200,
    decodeTokensPerSecond: 500,
    drafted: 2,
    accepted: 2,
  });
});

Deno.test("tokens cached after the prompt do not count as its own", async () => {
  const { generation, report, end } = manual(1);
  generation.begin(12);
  report([20]);
  assertEquals((await end()).cachedPromptTokens, 8);
});

Deno.test("draft tokens are accepted up to the first that differs, or the end", async () => {
  const { generation, report, end } = manual(9, { endTokens: new Set([30]) });
  report([20, 21, 22], { ahead: [20, 40], drafted: 2 });
  assertEquals([...generation.tokens.view(8)], [20, 21]);
  report([22, 30, 23], { ahead: [22, 30], drafted: 2 });
  assertEquals([...generation.tokens.view(8)], [20, 21, 22]);
  const { timings, finishReason } = await end();
  assertEquals([finishReason, timings.drafted, timings.accepted], ["stop", 4, 3]);
});

Deno.test("a step with draft tokens is one step, however many of them are accepted", async () => {
  for (const nDrafted of [0, 1, 2]) {
    const { generation, report, end } = manual(9, { endTokens: new Set([30]) });
    generation.begin(0);
    const start = Math.ceil(performance.now()) + 1;
    report([20, 21, 30], { drafted: nDrafted, began: start, ended: start + 30 });
    const { prefillMs, decodeMs } = (await end()).timings;
    assertEquals([prefillMs, decodeMs], nDrafted === 0 ? [10, 20] : [30, 0], `${nDrafted}`);
  }
});

Deno.test("a constraint that fails at its beginning fails the generation", async () => {
  let open = 0;
  const start = (): ConstraintState => {
    open++;
    return {
      fillMask() {
        throw new ForgeError("bad_input", "a contradiction");
      },
      accept() {},
      isTerminated: false,
      fork: start,
      dispose: () => void open--,
    };
  };
  const { generation, end } = manual(9, { constraint: { start } });
  assertEquals([generation.isEnded, open], [true, 0]);
  await assertRejects(end, ForgeError, "a contradiction");
});

Deno.test("a forced token takes the place of a choice, and a draft token may agree with it", async () => {
  const close = 51;
  const cases = [[[1, close], [1, close, 3], 2], [[1, 2], [1, close], 1]] as const;
  for (const [ahead, tokens, accepted] of cases) {
    const { generation, report, end } = manual(tokens.length, {
      reasoningLimit: { most: 1, close, open: undefined },
    });
    report([1, 2, 3], { ahead, drafted: 2 });
    assertEquals([...generation.tokens.view(8)], [...tokens]);
    assertEquals((await end()).timings.accepted, accepted);
  }
});

Deno.test("the mark that ends reasoning follows its last token", () => {
  const [open, close] = [50, 51];
  const limited = (most: number, tokens: readonly number[], mark?: number) => {
    const { generation, report } = manual(20, { reasoningLimit: { most, close, open: mark } });
    const strides = tokens.map((token) => {
      report([token]);
      return generation.stride;
    });
    return [[...generation.tokens.view(8)], strides];
  };
  assertEquals(limited(2, [1, 2, 3]), [[1, 2, close, 3], [1, 17, 16]]);
  assertEquals(limited(2, [open, 1, 2, 3], open), [[open, 1, 2, close, 3], [1, 1, 16, 15]]);
  assertEquals(limited(0, [open, 1], open), [[open, close, 1], [18, 17]]);
  // An answer without reasoning, and reasoning that ends by itself.
  assertEquals(limited(1, [1, open, 2, 3], open), [[1, open, 2, 3], [19, 18, 17, 16]]);
  assertEquals(limited(2, [1, close, 2, 3]), [[1, close, 2, 3], [1, 18, 17, 16]]);
});

/** Tests that results do not depend on how a long prompt is split into runs. */
import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { openBackend } from "../../../../src/engine/load/open_backend.ts";
import { PAGE_TOKENS, type RunLimits, Runner } from "../../../../src/engine/runner.ts";
import { Scheduler } from "../../../../src/engine/schedule/scheduler.ts";
import { StepPace } from "../../../../src/engine/schedule/ahead.ts";
import { lastLogits, scoreTokens, topCandidates } from "../../../../src/engine/generation/score.ts";
import { openCheckpoint } from "../../../../src/formats/checkpoint.ts";
import { load } from "../../../../src/mod.ts";
import { loadModel } from "../../../../src/models/registry.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { writeRandomLlama } from "../../../support/tiny_llama.ts";

const CONTEXT = 1100;
const TOKENS = Int32Array.from({ length: CONTEXT }, (_, i) => 2 + (i * i + 7 * i) % 90);

/** Tolerance for rounding, which differs with the order of sums. */
const TOLERANCE = 2e-4;

function assertSame(actual: Float32Array, expected: Float32Array): void {
  assertEquals(actual.length, expected.length);
  actual.forEach((value, i) => assertAlmostEquals(value, expected[i]!, TOLERANCE));
}

/** Converts logits to log-probabilities. */
function logSoftmax(logits: Float32Array): Float32Array {
  const largest = Math.max(...logits);
  const sum = logits.reduce((total, logit) => total + Math.exp(logit - largest), 0);
  return logits.map((logit) => logit - largest - Math.log(sum));
}

/** Runs a function on a scheduler of a random model whose runs are bounded by `limits`. */
async function withScheduler(
  folder: string,
  device: string,
  limits: Partial<RunLimits>,
  fn: (scheduler: Scheduler) => Promise<void>,
): Promise<void> {
  const backend = openBackend(device);
  try {
    const { lm } = loadModel(backend, openCheckpoint(folder));
    const runner = await Runner.open(backend, lm, { contextLength: CONTEXT, kvType: "F32" });
    Object.defineProperty(runner, "limits", { value: { ...runner.limits, ...limits } });
    const scheduler = new Scheduler(runner, undefined, new StepPace(1));
    await fn(scheduler);
    await scheduler.idle();
    assertEquals(runner.pages.freePages, Math.ceil(CONTEXT / PAGE_TOKENS));
  } finally {
    backend.close();
  }
}

Deno.test("logits and scores do not depend on the size of the runs", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, { contextLength: CONTEXT });
  await using model = await load(folder.path, { device: "reference" });
  const prompts = [1, 2, 3, 4, 5, 8, 9, 40].map((length) => TOKENS.slice(0, length));
  for (const maxOutputs of [1, 3, 4]) {
    await withScheduler(
      folder.path,
      "reference",
      { maxTokens: 4, maxOutputs },
      async (scheduler) => {
        for (const prompt of prompts) {
          assertSame(await lastLogits(scheduler, prompt), await model.logits(prompt));
          assertSame(await scoreTokens(scheduler, prompt), await model.score(prompt));
        }
      },
    );
  }
});

Deno.test("a score is the log-probability of the actual next token", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  await using model = await load(folder.path, { device: "reference" });
  const scores = await model.score(TOKENS.slice(0, 12));
  assertEquals(scores.length, 11);
  for (const [i, score] of scores.entries()) {
    const logprobs = logSoftmax(await model.logits(TOKENS.slice(0, i + 1)));
    assertAlmostEquals(score, logprobs[TOKENS[i + 1]!]!, TOLERANCE);
  }
  assertEquals((await model.score(TOKENS.slice(0, 1))).length, 0);
});

Deno.test("a generation does not depend on where its prompt is split", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, { contextLength: CONTEXT });
  await using model = await load(folder.path, { device: "cpu", kvType: "F32" });
  await withScheduler(folder.path, "cpu", { maxTokens: 77 }, async (scheduler) => {
    for (const length of [1, 2, 511, 512, 513, 1023, 1024, 1025, CONTEXT - 1]) {
      // Each prompt has a different first token, so that no prefix is cached.
      const prompt = TOKENS.slice(0, length).with(0, 2 + length % 90);
      const expected = logSoftmax(await lastLogits(scheduler, prompt));
      const done: number[] = [];
      const { logprobs = [] } = await model.complete(prompt, {
        temperature: 0,
        maxTokens: 1,
        logprobs: 1,
        onPrefill: (tokens, total) => {
          assertEquals(total, length);
          done.push(tokens);
        },
      });
      assertEquals(done, [512, 1024].filter((tokens) => tokens < length));
      const [first] = logprobs;
      assert(first !== undefined, "no token");
      assertEquals(first.token, expected.indexOf(Math.max(...expected)));
      assertAlmostEquals(first.logprob, expected[first.token]!, TOLERANCE);
    }
  });
});

Deno.test("a prompt is not computed if maxTokens is 0", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, { contextLength: CONTEXT });
  await using model = await load(folder.path, { device: "cpu" });
  const { finishReason } = await model.complete(TOKENS.slice(0, 600), {
    maxTokens: 0,
    onPrefill: () => {
      throw new Error("a chunk was computed");
    },
  });
  assertEquals(finishReason, "length");
});

Deno.test("candidates have a fixed order, and probabilities for logits of any size", () => {
  const logits = Float32Array.from([2, 0, 2, 1, 2, 0], (times) => 900 + Math.LN2 * times);
  const candidates = topCandidates(logits, 6);
  assertEquals(candidates.map(({ token }) => token), [0, 2, 4, 3, 1, 5]);
  const total = 4 + 4 + 4 + 2 + 1 + 1;
  for (const [i, weight] of [4, 4, 4, 2, 1, 1].entries()) {
    assertAlmostEquals(candidates[i]!.probability, weight / total, TOLERANCE);
  }
  assertEquals(topCandidates(logits, 2), candidates.slice(0, 2));
});

/**
 * Tests that tokens do not depend on other sequences. Random mixes of requests join, leave, pause,
 * are stopped or preempted, and share prefixes, on schedulers of many sizes. Each request must give
 * the tokens of a plain loop of single steps.
 */
import { assert, assertEquals } from "@std/assert";
import { Generation } from "../../../../src/engine/generation/generation.ts";
import { Scheduler } from "../../../../src/engine/schedule/scheduler.ts";
import { lastLogits, scoreTokens } from "../../../../src/engine/generation/score.ts";
import {
  CACHE,
  checkMix,
  randomCases,
  randomPrompts,
  randomRequest,
  readAll,
  roundsOf,
  withRunner,
} from "../../../support/mixes.ts";
import { Random } from "../../../support/random.ts";
import { writeRandomHybrid } from "../../../support/tiny_hybrid.ts";
import { writeRandomLlama } from "../../../support/tiny_llama.ts";
import { writeRandomMamba } from "../../../support/tiny_mamba.ts";

for (
  const [name, device, options, rounds] of [
    ["one at a time", "cpu", { maxSequences: 1 }, 2],
    ["two at a time", "cpu", { maxSequences: 2, cacheTokens: 4 * CACHE }, 2],
    ["with pages for few", "cpu", { maxSequences: 8, cacheTokens: CACHE }, 6],
    ["with pages for some", "cpu", { maxSequences: 8, cacheTokens: 2 * CACHE }, 4],
    ["all at once", "cpu", { maxSequences: 32, cacheTokens: 32 * CACHE }, 4],
    ["on the reference device", "reference", { maxSequences: 5, cacheTokens: CACHE }, 1],
  ] as const
) {
  Deno.test(`tokens do not depend on other sequences: ${name}`, async () => {
    await withRunner(device, options, async (runner, tokenizer) => {
      const random = new Random(`mixes ${name}`);
      let preemptions = 0;
      for (let round = 0; round < roundsOf(rounds); round++) {
        const cases = await randomCases(random, runner, tokenizer);
        preemptions += (await checkMix(random, runner, tokenizer, cases)).preemptions;
      }
      if (name === "with pages for few") assert(preemptions > 0, "nobody had to give way");
    });
  });
}

for (const division of [{ tensorParallel: 2 }, { pipelineParallel: 2 }]) {
  Deno.test(`tokens do not depend on other sequences with ${Object.keys(division)}`, async () => {
    const options = { maxSequences: 8, cacheTokens: 2 * CACHE };
    await withRunner(
      "cpu",
      options,
      async (runner, tokenizer) => {
        const random = new Random("mixes on ranks");
        for (let round = 0; round < roundsOf(2); round++) {
          await checkMix(random, runner, tokenizer, await randomCases(random, runner, tokenizer));
        }
      },
      writeRandomLlama,
      division,
    );
  });
}

for (
  const [name, device, options, rounds] of [
    ["one at a time", "cpu", { maxSequences: 1, nSlots: 2 }, 2],
    ["with slots for few", "cpu", { maxSequences: 8, cacheTokens: 8 * CACHE, nSlots: 3 }, 3],
    ["with pages for few", "cpu", { maxSequences: 8, cacheTokens: CACHE, nSlots: 9 }, 3],
    ["all at once", "cpu", { maxSequences: 32, cacheTokens: 32 * CACHE, nSlots: 64 }, 3],
    ["on the reference device", "reference", { maxSequences: 5, cacheTokens: CACHE }, 1],
  ] as const
) {
  Deno.test(`tokens do not depend on other sequences with recurrent state: ${name}`, async () => {
    await withRunner(device, options, async (runner, tokenizer) => {
      const random = new Random(`recurrent mixes ${name}`);
      for (let round = 0; round < roundsOf(rounds); round++) {
        await checkMix(random, runner, tokenizer, await randomCases(random, runner, tokenizer));
      }
    }, writeRandomHybrid);
  });
}

Deno.test("tokens do not depend on other sequences with Mamba-2", async () => {
  await withRunner("cpu", { maxSequences: 8, cacheTokens: CACHE, nSlots: 9 }, async (runner, t) => {
    const random = new Random("mixes of Mamba-2");
    await checkMix(random, runner, t, await randomCases(random, runner, t));
  }, writeRandomMamba);
});

Deno.test("scores and logits do not depend on generations in flight", async () => {
  const options = { maxSequences: 4, cacheTokens: 2 * CACHE };
  await withRunner("cpu", options, async (runner, tokenizer) => {
    const random = new Random("scores among generations");
    const prompts = randomPrompts(random, 12);
    const alone: { scores: Float32Array; logits: Float32Array }[] = [];
    for (const prompt of prompts) {
      const scheduler = new Scheduler(runner);
      alone.push({
        scores: await scoreTokens(scheduler, prompt),
        logits: await lastLogits(scheduler, prompt),
      });
    }
    const scheduler = new Scheduler(runner);
    await Promise.all(prompts.flatMap((prompt, i) => [
      scoreTokens(scheduler, prompt).then((scores) => assertEquals(scores, alone[i]!.scores)),
      lastLogits(scheduler, prompt).then((logits) => assertEquals(logits, alone[i]!.logits)),
      readAll(
        random,
        new Generation(tokenizer, randomRequest(random, prompt)).run(scheduler),
        Infinity,
      ),
    ]));
    await scheduler.idle();
    assertEquals(runner.pages.freePages, runner.pages.nPages);
  });
});

/**
 * Tests that draft tokens change no token. Random mixes of requests, as in `../mixes_test.ts`, with
 * any acceptance rate from 0 to 1, must give the tokens of a plain loop.
 */
import { assert, assertEquals } from "@std/assert";
import { Generation } from "../../../../src/engine/generation/generation.ts";
import { Scheduler } from "../../../../src/engine/schedule/scheduler.ts";
import type { ModelDrafter } from "../../../../src/engine/speculation/model_drafter.ts";
import {
  Speculator,
  type SpeculatorOptions,
} from "../../../../src/engine/speculation/speculator.ts";
import { commonLength } from "../../../../src/engine/token_list.ts";
import {
  CACHE,
  checkMix,
  generateAlone,
  type MixCase,
  randomCases,
  randomPrompts,
  randomRequest,
  readAll,
  roundsOf,
  withRunner,
} from "../../../support/mixes.ts";
import { OracleDrafter, OracleHead } from "../../../support/oracle_drafter.ts";
import { Random } from "../../../support/random.ts";
import { drawn } from "../../../support/thorough.ts";
import { writeRandomHybrid } from "../../../support/tiny_hybrid.ts";
import { writeRandomMamba } from "../../../support/tiny_mamba.ts";
import { writeRandomLlama } from "../../../support/tiny_llama.ts";

const VOCABULARY = 97;

function textsOf(cases: readonly MixCase[]): Int32Array[] {
  return cases.map(({ request, alone }) =>
    Int32Array.from([...Array.from(request.prompt), ...alone.map(({ token }) => token)])
  );
}

/** Chooses the speculator options for some cases. */
type Guessing = (random: Random, cases: readonly MixCase[]) => SpeculatorOptions;

function oracleOptions(random: Random, cases: readonly MixCase[], hitRate: number) {
  const texts = textsOf(cases);
  const answer = (text: Int32Array, most: number) => {
    const alike = texts.filter((other) => commonLength(text, other) === text.length);
    const known = alike.length === 0 ? [] : random.pick(alike);
    return known.slice(text.length, text.length + most);
  };
  return { random, answer, hitRate, vocabSize: VOCABULARY };
}

const oracle = (length: number | undefined, hitRate: number): Guessing => (random, cases) => {
  const options = oracleOptions(random, cases, hitRate);
  return { length, newDrafter: () => new OracleDrafter(options) };
};

/** Drafts trees; without a rate, the first choice is always wrong. */
const tree = (length: number | undefined, hitRate: number): Guessing => (random, cases) => {
  const model = new OracleHead(oracleOptions(random, cases, hitRate));
  return { length, model, treeWidth: 3 };
};

/** Returns the function that writes the model of a mix. */
function writerOf(name: string) {
  if (name.startsWith("Mamba-2")) return writeRandomMamba;
  return name.startsWith("recurrent") ? writeRandomHybrid : writeRandomLlama;
}

const MIXES = [
  ["one sequence, all right", "cpu", { maxSequences: 1 }, 1, oracle(7, 1)],
  ["one sequence, all wrong", "cpu", { maxSequences: 1 }, 1, oracle(5, 0)],
  ["few pages, half right", "cpu", { maxSequences: 8, cacheTokens: CACHE }, 3, oracle(4, 0.5)],
  ["few pages, long", "cpu", { maxSequences: 8, cacheTokens: CACHE }, 3, oracle(32, 0.95)],
  ["some pages, one", "cpu", { maxSequences: 8, cacheTokens: 2 * CACHE }, 2, oracle(1, 0.7)],
  ["all at once", "cpu", { maxSequences: 32, cacheTokens: 32 * CACHE }, 2, oracle(9, 0.8)],
  ["as many as pay", "cpu", { maxSequences: 3 }, 2, oracle(undefined, 0.8)],
  ["looked up", "cpu", { maxSequences: 2 }, 2, () => ({ length: 3 })],
  ["looked up as it pays", "cpu", { maxSequences: 2 }, 2, () => ({})],
  [
    "the reference device",
    "reference",
    { maxSequences: 5, cacheTokens: CACHE },
    1,
    oracle(3, 0.6),
  ],
  ["tree, one sequence", "cpu", { maxSequences: 1, maxBranches: 16 }, 1, tree(5, 0.4)],
  [
    "tree, second choices",
    "cpu",
    { maxSequences: 2, cacheTokens: 9 * CACHE, maxBranches: 40 },
    1,
    tree(2, 0),
  ],
  [
    "tree, few pages, long",
    "cpu",
    { maxSequences: 8, cacheTokens: CACHE, maxBranches: 5 },
    1,
    tree(20, 0.9),
  ],
  [
    "tree, all at once",
    "cpu",
    { maxSequences: 32, cacheTokens: 32 * CACHE, maxBranches: 40 },
    1,
    tree(4, 0.5),
  ],
  ["tree, as many as pay", "cpu", { maxSequences: 3, maxBranches: 9 }, 1, tree(undefined, 0.8)],
  [
    "tree, the reference device",
    "reference",
    { maxSequences: 5, cacheTokens: 3 * CACHE, maxBranches: 16 },
    1,
    tree(3, 0.5),
  ],
  ["recurrent state, tree", "cpu", { maxSequences: 2, nSlots: 6, maxBranches: 9 }, 1, tree(6, 1)],
  // Several mixes, because in some of them many draft tokens follow the ends of texts.
  ["recurrent state, all right", "cpu", { maxSequences: 2, nSlots: 6 }, 9, oracle(6, 1)],
  ["recurrent state, all wrong", "cpu", { maxSequences: 1, nSlots: 3 }, 1, oracle(5, 0)],
  ["recurrent state, half right", "cpu", { maxSequences: 8, nSlots: 24 }, 3, oracle(4, 0.5)],
  ["recurrent state, few slots", "cpu", { maxSequences: 8, nSlots: 9 }, 2, oracle(12, 0.9)],
  ["recurrent state, as many as pay", "cpu", { maxSequences: 3 }, 2, oracle(undefined, 0.8)],
  ["Mamba-2, few slots", "cpu", { maxSequences: 8, nSlots: 9 }, 1, oracle(12, 0.9)],
  ["recurrent state, the reference device", "reference", { maxSequences: 5 }, 1, oracle(3, 0.6)],
] as const;

for (const [name, device, options, rounds, drafting] of drawn("mixes", MIXES, 1 / 2)) {
  Deno.test(`draft tokens change no token: ${name}`, async () => {
    await withRunner(device, options, async (runner, tokenizer) => {
      const random = new Random(`drafts ${name}`);
      let drafted = 0, accepted = 0;
      for (let round = 0; round < roundsOf(rounds); round++) {
        const cases = await randomCases(random, runner, tokenizer);
        const speculator = new Speculator(drafting(random, cases));
        const counts = await checkMix(random, runner, tokenizer, cases, speculator);
        drafted += counts.drafted;
        accepted += counts.accepted;
      }
      if (name !== "looked up as it pays") assert(drafted > 100, `only ${drafted} draft tokens`);
      const share = accepted / drafted;
      // Those after the end of a text are not accepted.
      if (name.endsWith("all right")) assert(share > 0.8, `${share} of the draft tokens accepted`);
      else if (name.endsWith("all wrong")) assertEquals(accepted, 0);
      else if (name.endsWith("second choices")) assert(share > 0.05, `${share} accepted`);
      else if (name.includes("right")) assert(share > 0.1 && share < 0.7, `${share} accepted`);
    }, writerOf(name));
  });
}

Deno.test("a text that is stopped between its draft and its step harms no other text", async () => {
  const options = { maxSequences: 2, cacheTokens: 9 * CACHE, maxBranches: 40 };
  await withRunner("cpu", options, async (runner, tokenizer) => {
    const random = new Random("stopped after the draft");
    const requests = [0, 1].map(() => ({
      ...randomRequest(random, randomPrompts(random, 1)[0]!, 0),
      maxTokens: 20,
      endTokens: new Set<number>(),
    }));
    const cases = [];
    for (const request of requests) {
      cases.push({ request, alone: await generateAlone(runner, tokenizer, request) });
    }
    // The text ends that many turns of the microtask queue after its draft.
    for (let delay = 0; delay < 8; delay++) {
      const stopping = new AbortController();
      const head = new OracleHead(oracleOptions(random, cases, 0));
      let nDrafts = 0;
      const model: ModelDrafter = {
        rate: () => head.rate(),
        cost: () => head.cost(),
        lag: () => head.lag(),
        cancel: () => head.cancel(),
        forget: () => head.forget(),
        async draft(prospects, counts, tree) {
          await head.draft(prospects, counts, tree);
          if (++nDrafts === 3) void microtasks(delay).then(() => stopping.abort());
        },
      };
      const scheduler = new Scheduler(runner, new Speculator({ length: 2, model, treeWidth: 3 }));
      const run = (i: number, signal?: AbortSignal) =>
        readAll(
          random,
          new Generation(tokenizer, { ...requests[i]!, signal }).run(scheduler),
          Infinity,
        );
      const [stopped, other] = await Promise.all([run(0, stopping.signal), run(1)]);
      await scheduler.idle();
      assert(stopped.length < 20 && head.branches > 0);
      assertEquals(other, cases[1]!.alone, `stopped after ${delay} turns`);
      assertEquals(runner.pages.freePages, runner.pages.nPages, `leak after ${delay} turns`);
    }
  });
});

async function microtasks(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await undefined;
}

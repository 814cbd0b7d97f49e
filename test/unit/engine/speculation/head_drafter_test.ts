/**
 * Tests the head for multi-token prediction as a drafter: good or bad, it leaves every token
 * unchanged.
 */
import { assert, assertAlmostEquals, assertEquals } from "@std/assert";
import { HeadDrafter } from "../../../../src/engine/speculation/head_drafter.ts";
import { Speculator } from "../../../../src/engine/speculation/speculator.ts";
import type { OutputRequest, StepResult } from "../../../../src/backend.ts";
import type { PageTable } from "../../../../src/engine/cache/kv_pages.ts";
import { type Chunk, UNSAMPLED } from "../../../../src/engine/runner.ts";
import { TokenMask } from "../../../../src/engine/generation/token_mask.ts";
import { Draft } from "../../../../src/engine/speculation/draft.ts";
import { TokenList } from "../../../../src/engine/token_list.ts";
import { type GenerateOptions, load } from "../../../../src/mod.ts";
import { CACHE, checkMix, randomCases, withRunner } from "../../../support/mixes.ts";
import { Places } from "../../../support/places.ts";
import { Random } from "../../../support/random.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { drawn } from "../../../support/thorough.ts";
import { writeRandomHybrid } from "../../../support/tiny_hybrid.ts";
import {
  type TinyLlamaOptions,
  writeForeseeingLlama,
  writeLlamaAdapter,
  writeRandomLlama,
} from "../../../support/tiny_llama.ts";

const UNSURE = { propose: () => ({ tokens: [], odds: [] }) };

const writeGuessing = (folder: string, options: TinyLlamaOptions = {}) =>
  writeRandomLlama(folder, { ...options, predictor: true });

/** Qwen3.5's layer has the names of its own layout, and attention with an output gate. */
const writeHybrid = (folder: string, options: TinyLlamaOptions = {}) => {
  const names: Readonly<Record<string, string>> = {
    enorm: "pre_fc_norm_embedding",
    hnorm: "pre_fc_norm_hidden",
    eh_proj: "fc",
    "shared_head.norm": "norm",
  };
  const change: TinyLlamaOptions["change"] = (tensors) =>
    tensors.flatMap((tensor) => {
      const [, own = ""] = /^model\.layers\.2\.(.*)\.weight$/.exec(tensor.name) ?? [];
      if (own === "self_attn.q_proj") return [];
      const gated = /^model\.layers\.1\.(self_attn\.q_.*|self_attn\.k_norm.*)$/.exec(tensor.name);
      if (gated !== null) return [tensor, { ...tensor, name: `mtp.layers.0.${gated[1]}` }];
      if (own === "") return [tensor];
      const name = names[own] === undefined ? `mtp.layers.0.${own}` : `mtp.${names[own]}`;
      return [{ ...tensor, name: `${name}.weight` }];
    });
  return writeRandomHybrid(folder, { ...options, predictor: true, change });
};

const CASES = [
  ["a good one", "cpu", { maxSequences: 4, cacheTokens: 4 * CACHE }, writeForeseeingLlama, 5],
  [
    "a good one, few pages",
    "cpu",
    { maxSequences: 8, cacheTokens: CACHE },
    writeForeseeingLlama,
    3,
  ],
  ["a good one, as it pays", "cpu", { maxSequences: 2 }, writeForeseeingLlama, undefined],
  ["a bad one", "cpu", { maxSequences: 8, cacheTokens: CACHE }, writeGuessing, 4],
  ["a bad one, as it pays", "cpu", { maxSequences: 2 }, writeGuessing, undefined],
  ["the reference device", "reference", { maxSequences: 4, cacheTokens: CACHE }, writeGuessing, 2],
  ["recurrent state", "cpu", { maxSequences: 4, nSlots: 14 }, writeHybrid, 3],
  ["a good one's tree", "cpu", { maxSequences: 2, maxBranches: 16 }, writeForeseeingLlama, 3, 3],
  ["a bad one's tree", "cpu", { maxSequences: 4, maxBranches: 9 }, writeGuessing, 3, 4],
  [
    "a bad one's tree, few pages",
    "cpu",
    { maxSequences: 8, cacheTokens: CACHE, maxBranches: 9 },
    writeGuessing,
    7,
    2,
  ],
  [
    "a bad one's tree, the reference device",
    "reference",
    { maxSequences: 2, maxBranches: 9 },
    writeGuessing,
    2,
    3,
  ],
  ["leaves as they pay", "cpu", { maxSequences: 2, maxBranches: 9 }, writeGuessing, undefined],
] as const;

for (
  const [name, device, options, writeModel, length, treeWidth] of drawn("heads", CASES, 1 / 2)
) {
  Deno.test(`a draft head changes no token: ${name}`, async () => {
    await withRunner(device, options, async (runner, tokenizer) => {
      assert(runner.hasDraftHead);
      const random = new Random(`draft head: ${name}`);
      // The head does not draw as the host does: its tokens would be accepted less often.
      const isGood = writeModel === writeForeseeingLlama;
      const cases = await randomCases(random, runner, tokenizer, isGood ? 0 : undefined);
      const model = new HeadDrafter(runner);
      const speculator = new Speculator({ length, treeWidth, model, newDrafter: () => UNSURE });
      const { drafted, accepted } = await checkMix(random, runner, tokenizer, cases, speculator);
      if (length !== undefined) assert(drafted > 50, `only ${drafted} drafted`);
      const share = accepted / drafted;
      const least = treeWidth === undefined ? 0.8 : 0.8 / treeWidth;
      assert(drafted < 20 || (isGood ? share > least : share < 0.5), `${share} accepted`);
    }, writeModel);
  });
}

Deno.test("a draft head changes no answer with adapters, of replicas, nor several completions", async () => {
  using folder = new TempFolder();
  writeGuessing(folder.at("model"));
  writeLlamaAdapter(folder.at("adapter"));
  const prompt = "The quick brown fox";
  const answers = async (speculate: "off" | number) => {
    const lora = [{ path: folder.at("adapter"), name: "style" }];
    const options = { device: "cpu", threads: 2, dataParallel: 2, speculate, lora } as const;
    await using model = await load(folder.at("model"), options);
    const choices = [[], [{ name: "style" }], [{ name: "style", scale: 0.5 }]];
    const all = await Promise.all(choices.flatMap((lora, seed) => [
      model.complete(prompt, { temperature: 0, maxTokens: 40, lora }),
      ...[1, 2].map((n) => model.completeMany(prompt, 3, { seed: n * seed, maxTokens: 30, lora })),
    ]));
    return all.flat();
  };
  const [plain, drafting] = [await answers("off"), await answers(3)];
  const texts = (all: typeof plain) => all.map(({ tokenIds }) => tokenIds);
  assertEquals(texts(drafting), texts(plain));
  assert(
    new Set([0, 7, 14].map((i) => `${plain[i]!.tokenIds}`)).size === 3,
    "adapters change answers",
  );
  const drafted = drafting.reduce((sum, { timings }) => sum + timings.drafted, 0);
  assert(drafted > 300, `only ${drafted} drafted`);
});

Deno.test("a head with fewer tokens gets masks, biases and histories of its own tokens", async () => {
  const requests: OutputRequest[] = [];
  const runner = {
    contextLength: 64,
    vocabSize: 100,
    draftTokens: Int32Array.of(2, 40, 41, 97),
    draft(chunks: readonly Chunk[]): Promise<StepResult[][]> {
      requests.push(...chunks.flatMap(({ outputs }) => outputs));
      return Promise.resolve(chunks.map(() => [{ token: 3, logprob: 0, top: [] }]));
    },
    cancel: () => {},
  };
  const mask = new Uint32Array(4);
  for (const token of [2, 41, 97]) mask[token >> 5]! |= 1 << (token & 31);
  const bias = new Map([[40, 1], [50, 2], [97, -3]]);
  const next = () => ({
    ...UNSAMPLED,
    row: 0,
    history: Int32Array.of(97, 5, 2),
    sampling: { ...UNSAMPLED.sampling, mask, bias },
  });
  using draft = new Draft(undefined, new Set());
  draft.limit = 1;
  const table = { reserve: () => true } as unknown as PageTable;
  const prospect = { tokens: new TokenList([7, 8]), draft, room: 1, replayed: 0, table, stored: 1 };
  await new HeadDrafter(runner).draft([{ ...prospect, next }], [1]);
  const { sampling: { mask: own, bias: ownBias }, history } = requests[0]!;
  assertEquals([own, Array.from(history)], [Uint32Array.of(0b1101), [3, 0]]);
  assertEquals(ownBias, new Map([[1, 1], [3, -3]]));
  assertEquals(draft.tokens, [97]);
});

Deno.test("a head names as many candidates as a tree has use for, also with masks", async () => {
  for (const width of [undefined, 1, 2, 8]) {
    for (const isMasked of [false, true]) {
      const asked: number[] = [];
      const runner = {
        contextLength: 64,
        vocabSize: 100,
        draftTokens: undefined,
        draft(chunks: readonly Chunk[]): Promise<StepResult[][]> {
          asked.push(...chunks.flatMap(({ outputs }) => outputs.map(({ nTop }) => nTop)));
          return Promise.resolve(chunks.map(() => [{ token: 3, logprob: 0, top: [] }]));
        },
        cancel: () => {},
      };
      const mask = new TokenMask(new Places([[3, 4], [5, 6]]).start(), 100);
      using draft = new Draft(isMasked ? mask : undefined, new Set());
      draft.limit = 1;
      const table = { reserve: () => true } as unknown as PageTable;
      const prospect = {
        ...{ tokens: new TokenList([7, 8]), draft, room: 1, replayed: 0, table, stored: 1 },
        next: () => ({ ...UNSAMPLED, row: 0 }),
        branch: () => undefined,
      };
      const tree = width === undefined ? undefined : { width, takeRow: () => true };
      await new HeadDrafter(runner).draft([prospect], [1], tree);
      assertEquals(asked, [width === undefined ? 0 : Math.max(width, 3)], `${width} ${isMasked}`);
    }
  }
});

Deno.test("the likeliest choices that a chain does not take become leaves while rows pay", async () => {
  const choice = (token: number, probability: number) => ({
    token,
    logprob: Math.log(probability),
  });
  const runner = {
    contextLength: 64,
    vocabSize: 100,
    draftTokens: undefined,
    draft: (): Promise<StepResult[][]> =>
      Promise.resolve([[
        { ...choice(3, 0.5), top: [choice(3, 0.5), choice(4, 0.3), choice(5, 0.05)] },
        { ...choice(6, 0.5), top: [choice(7, 0.2)] },
      ]]),
    cancel: () => {},
  };
  // Odds of a choice are the middle of its tenth before any outcome.
  const leaves = [[0, 4, 0.35], [1, 7, 0.55 * 0.25], [0, 5, 0.05]] as const;
  for (const nRows of [0, 1, 2, 9]) {
    const added: (readonly [from: number, token: number])[] = [], asked: number[] = [];
    using draft = new Draft(undefined, new Set());
    draft.limit = 2;
    const table = { reserve: () => true } as unknown as PageTable;
    const prospect = {
      ...{ tokens: new TokenList([7, 8]), draft, room: 2, replayed: 0, table, stored: 1 },
      next: () => ({ ...UNSAMPLED, row: 0 }),
      branch: (_path: unknown, from: number, token: number) => void added.push([from, token]),
    };
    const takeRow = (odds: number) => asked.push(odds) <= nRows;
    const tree = { width: 1, takeRow };
    await new HeadDrafter(runner).draft([prospect as never], [2], tree);
    assertEquals(draft.tokens, [3, 6]);
    assertEquals(added, leaves.slice(0, nRows).map(([from, token]) => [from, token] as const));
    for (const [i, odds] of asked.entries()) assertAlmostEquals(odds, leaves[i]![2]);
  }
});

const SCHEMA = { type: "object", properties: { a: { type: "integer" } }, required: ["a"] };
const REQUESTS: readonly GenerateOptions[] = [
  { temperature: 0, seed: 2, maxTokens: 50, logprobs: 3 },
  { temperature: 1, seed: 3, maxTokens: 50, stop: ["a", "q!"] },
  { temperature: 1.5, seed: 4, maxTokens: 60, jsonSchema: SCHEMA },
  { temperature: 0.9, seed: 5, maxTokens: 60, regex: "[a-z ]{20,40}[0-9]+", logprobs: 1 },
  { temperature: 1, seed: 6, maxTokens: 40, repeatPenalty: 1.2, frequencyPenalty: 0.3, minP: 0.1 },
];

Deno.test("a draft head drafts by default on the CPU, and answers are those without it", async () => {
  for (const writeModel of [writeForeseeingLlama, writeGuessing]) {
    using folder = new TempFolder();
    const path = folder.at("model");
    writeModel(path);
    const answers = async (speculate: "off" | number, kvDir?: string) => {
      await using model = await load(path, { device: "cpu", threads: 2, speculate, kvDir });
      const prompt = `${"The quick brown fox jumps over the lazy dog. ".repeat(3)}?`;
      const all = await Promise.all(REQUESTS.map((options) => model.complete(prompt, options)));
      const drafted = all.reduce((sum, { timings }) => sum + timings.drafted, 0);
      const accepted = all.reduce((sum, { timings }) => sum + timings.accepted, 0);
      const results = all.map(({ timings: _, cachedPromptTokens: __, ...answer }) => answer);
      return { drafted, accepted, results };
    };
    const plain = await answers("off");
    assertEquals(plain.drafted, 0);
    // The second load finds the prompt in the folder, hidden states included.
    for (let round = 0; round < 2; round++) {
      const { drafted, accepted, results } = await answers(4, folder.at("kv"));
      assertEquals(results, plain.results);
      assert(drafted > 100, `only ${drafted} drafted`);
      if (writeModel === writeForeseeingLlama) {
        assert(accepted > drafted / 3, `${accepted} accepted`);
      }
    }
  }
});

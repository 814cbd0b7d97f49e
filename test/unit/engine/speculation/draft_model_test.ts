import { assert, assertEquals, assertRejects } from "@std/assert";
import { openBackend } from "../../../../src/engine/load/open_backend.ts";
import { Runner } from "../../../../src/engine/runner.ts";
import { Draft } from "../../../../src/engine/speculation/draft.ts";
import { DraftModel } from "../../../../src/engine/speculation/draft_model.ts";
import { fitRequest } from "../../../../src/engine/speculation/draft_vocabulary.ts";
import { Speculator } from "../../../../src/engine/speculation/speculator.ts";
import { TokenList } from "../../../../src/engine/token_list.ts";
import { ForgeError } from "../../../../src/errors.ts";
import { openCheckpoint } from "../../../../src/formats/checkpoint.ts";
import { load } from "../../../../src/mod.ts";
import { loadModel } from "../../../../src/models/registry.ts";
import { FAKE_VOCABULARY, FakeRunner } from "../../../support/fake_runner.ts";
import { CACHE, checkMix, randomCases, withRunner } from "../../../support/mixes.ts";
import { Random } from "../../../support/random.ts";
import { outputRow } from "../../../support/step_graph.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { writeRandomLlama } from "../../../support/tiny_llama.ts";

/**
 * Tests draft models: any model of the same vocabulary, good or bad, leaves every token unchanged.
 * A copy of the model itself is nearly always accepted, since it draws the same random numbers.
 */

const UNSURE = { propose: () => ({ tokens: [], odds: [] }) };

for (
  const [name, seed, contextLength, pages, options, length] of [
    ["the model itself", 1, 400, 1000, { maxSequences: 4, cacheTokens: 4 * CACHE }, 5],
    ["the model itself, as it pays", 1, 400, 1000, { maxSequences: 2 }, undefined],
    ["another model", 2, 400, 1000, { maxSequences: 8, cacheTokens: CACHE }, 3],
    ["a model of a shorter context", 1, 150, 1000, { maxSequences: 4, cacheTokens: CACHE }, 4],
    ["a model with pages for few", 1, 400, 8, { maxSequences: 8, cacheTokens: 4 * CACHE }, 6],
  ] as const
) {
  Deno.test(`a draft model changes no token: ${name}`, async () => {
    using folder = new TempFolder();
    writeRandomLlama(folder.path, { contextLength }, seed);
    const backend = openBackend("cpu", 1);
    try {
      const { lm } = loadModel(backend, openCheckpoint(folder.path));
      const draft = await Runner.open(backend, lm, {
        contextLength,
        kvType: "F16",
        maxSequences: options.maxSequences,
        cacheTokens: 64 * pages,
      });
      await withRunner("cpu", options, async (runner, tokenizer) => {
        const random = new Random(`draft model: ${name}`);
        // A draft model does not draw as the host does: its tokens would be accepted less often.
        const onHost = seed === 1 ? 0 : undefined;
        const cases = await randomCases(random, runner, tokenizer, onHost);
        const model = new DraftModel(draft);
        const speculator = new Speculator({ length, model, newDrafter: () => UNSURE });
        const { drafted, accepted } = await checkMix(random, runner, tokenizer, cases, speculator);
        const share = accepted / drafted;
        // A draft model as slow as the model itself gains nothing.
        if (length !== undefined) assert(drafted > 50, `only ${drafted} drafted`);
        assert(drafted < 20 || (seed === 1 ? share > 0.8 : share < 0.5), `${share} accepted`);
        assertEquals(draft.pages.freePages, draft.pages.nPages, "a page of the draft model leaked");
      });
    } finally {
      backend.close();
    }
  });
}

/** A draft whose text ends right after a token is added, as when the reader leaves. */
class EndingDraft extends Draft {
  override add(token: number): boolean {
    const added = super.add(token);
    queueMicrotask(() => this[Symbol.dispose]());
    return added;
  }
}

Deno.test("a text that ends while drafting gets no more draft tokens", async () => {
  const model = new FakeRunner({ nPages: 20 });
  const runner = Object.assign(model, { contextLength: 60, vocabSize: FAKE_VOCABULARY });
  const prospects = [EndingDraft, Draft].map((Kind, i) => {
    const draft = new Kind(undefined, new Set());
    draft.limit = 5;
    const tokens = new TokenList([1, 2, i]);
    const table = runner.newSequence();
    return { tokens, draft, room: 5, replayed: 0, table, stored: 0, next: () => outputRow(0) };
  });
  await new DraftModel(runner).draft(prospects, [4, 4]);
  assertEquals(prospects.map(({ draft }) => draft.tokens.length), [0, 4]);
  assertEquals(model.runs.map((chunks) => chunks.length), [2, 1, 1, 1]);
});

Deno.test("a draft model drafts to the end of its context, and stops when asked to", async () => {
  const drafted = async (contextLength: number) => {
    const fake = new FakeRunner({ nPages: 20 });
    let cancels = 0;
    const cancel = () => void cancels++;
    const runner = Object.assign(fake, { contextLength, vocabSize: FAKE_VOCABULARY, cancel });
    const draft = new Draft(undefined, new Set());
    draft.limit = 9;
    const tokens = new TokenList([1, 2, 3]), table = runner.newSequence();
    const prospect = { tokens, draft, room: 9, replayed: 0, table, stored: 0 };
    const model = new DraftModel(runner);
    assertEquals(model.lag(tokens), 3);
    await model.draft([{ ...prospect, next: () => outputRow(0) }], [4]);
    const lag = model.lag(tokens);
    model.forget(tokens);
    model.cancel();
    assertEquals([cancels, runner.pages.freePages], [1, 20]);
    return [draft.tokens.length, lag];
  };
  assertEquals(await drafted(3), [0, 3]);
  assertEquals(await drafted(4), [2, -1]);
  assertEquals(await drafted(5), [3, -2]);
  assertEquals(await drafted(60), [4, -3]);
});

const PROMPT = "abcabcabcabc";

Deno.test("load accepts a draft model; tokens, log-probabilities and ends stay", async () => {
  using large = new TempFolder();
  using small = new TempFolder();
  writeRandomLlama(large.path, { contextLength: 300 }, 1);
  // The same weights with more vocabulary padding, as between the sizes of a model family.
  writeRandomLlama(small.path, { contextLength: 300 }, 1);
  const requests = [
    { temperature: 0, seed: 1, maxTokens: 80 },
    { temperature: 1, seed: 4, maxTokens: 100, logprobs: 2, repeatPenalty: 1.3 },
    { seed: 5, maxTokens: 60, regex: "[a-z ]{3,50}(one|two){4}!{3}" },
    { seed: 6, maxTokens: 60, jsonObject: true, logitBias: { 40: 2 } },
  ];
  const generate = async (options: Parameters<typeof load>[1]) => {
    await using model = await load(large.path, { device: "cpu", threads: 1, ...options });
    const answers = await Promise.all(
      requests.map((request) => model.complete(PROMPT, { raw: true, ...request })),
    );
    return { answers, memory: model.memory };
  };
  const plain = await generate({ speculate: "off" });
  for (const speculate of [undefined, "on", 3] as const) {
    const { answers, memory } = await generate({ speculate, draftModel: small.path });
    assertEquals(
      answers.map(({ timings: _, ...answer }) => answer),
      plain.answers.map(({ timings: _, ...answer }) => answer),
    );
    assert(memory.weights > plain.memory.weights && memory.kvCache > plain.memory.kvCache);
    if (speculate !== 3) continue;
    for (const { timings } of answers) assert(timings.accepted > 0.5 * timings.drafted);
  }
});

Deno.test("a draft model is rejected with another vocabulary or with speculate off", async () => {
  using large = new TempFolder();
  using other = new TempFolder();
  using longer = new TempFolder();
  writeRandomLlama(large.path, { pieces: ["one", "two"] });
  writeRandomLlama(other.path, { pieces: ["one", "too"] });
  writeRandomLlama(longer.path, { pieces: Array.from({ length: 300 }, (_, i) => `<${i}>`) });
  const refused = async (draftModel: string, options = {}) => {
    const error = await assertRejects(
      () => load(large.path, { device: "cpu", draftModel, ...options }),
      ForgeError,
    );
    return [error.code, error.message.replace(draftModel, "D")];
  };
  const start = 'the draft model "D" has another vocabulary than the model: ';
  assertEquals(await refused(other.path), ["usage", `${start}token 98 is "too", not "two"`]);
  assertEquals(await refused(longer.path), ["usage", `${start}397 tokens, not 99`]);
  assertEquals(await refused(large.path, { speculate: "off" }), [
    "usage",
    "speculate is off, but a draft model is given; give one of them",
  ]);
  assertEquals((await refused(`${large.path}/none`))[0], "not_found");
});

Deno.test("a request is fitted to a vocabulary with less or more padding", () => {
  const mask = new Uint32Array([0xffffffff, 0xffffffff, 0b1111]);
  const request = {
    row: 3,
    sampling: {
      repeatPenalty: 1,
      presencePenalty: 0,
      frequencyPenalty: 0,
      bias: new Map([[10, 1], [50, 2]]),
      mask,
      temperature: 1,
      topK: 0,
      topP: 1,
      minP: 0,
      seed: 7n,
    },
    history: [1, 50, 2],
    stream: 1,
    position: 9,
    nTop: 4,
  };
  const less = fitRequest(request, 40);
  assertEquals([...less.sampling.mask!], [0xffffffff, 0xff]);
  assertEquals([[...less.sampling.bias!], Array.from(less.history)], [[[10, 1]], [1, 2]]);
  assertEquals([less.nTop, less.position, less.stream], [0, 9, 1]);
  assertEquals([...fitRequest(request, 130).sampling.mask!], [...mask, 0, 0]);
  // A mask that is filled lazily stays lazy.
  const late = fitRequest({ ...request, fillMask: () => mask.fill(5) }, 64);
  assertEquals([...late.sampling.mask!], [0, 0]);
  late.fillMask!();
  assertEquals([...late.sampling.mask!], [5, 5]);
});

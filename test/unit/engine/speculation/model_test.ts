/**
 * Tests that the public API gives the same tokens, log-probabilities and ends with and without
 * draft tokens, for requests with constraints, stop strings and sampling options.
 */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { ForgeError } from "../../../../src/errors.ts";
import {
  type Completion,
  type GenerateOptions,
  load,
  type LoadOptions,
  type Model,
} from "../../../../src/mod.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { writeRandomLlama } from "../../../support/tiny_llama.ts";

const DEMO = `${import.meta.dirname}/../../../../models/demo`;
const ASK = "Give me the facts as JSON.";
const STORY = `Once upon a time there was a fox named Socks. Socks had a friend named Tara. ${ASK}`;

const SCHEMA = {
  type: "array",
  minItems: 2,
  maxItems: 4,
  items: {
    type: "object",
    properties: {
      name: { type: "string", maxLength: 12 },
      animal: { enum: ["fox", "dog", "cat"] },
      age: { type: "integer", minimum: 0, maximum: 20 },
    },
    required: ["name", "animal", "age"],
    additionalProperties: false,
  },
};

/** Requests with many draft tokens, with constraints, and with early ends. */
const REQUESTS: readonly [prompt: string, options: GenerateOptions][] = [
  [STORY, { temperature: 0, maxTokens: 60 }],
  [STORY, { seed: 3, temperature: 1.3, maxTokens: 40, logprobs: 3 }],
  [STORY, { seed: 1, jsonSchema: SCHEMA, maxTokens: 150 }],
  [STORY, { seed: 2, jsonSchema: SCHEMA, maxTokens: 31 }],
  [STORY, { seed: 2, jsonSchema: SCHEMA, logprobs: 1, maxTokens: 150 }],
  [STORY, { seed: 4, jsonObject: true, repeatPenalty: 1.2, maxTokens: 60 }],
  ["", { regex: "(abc|abd){9}[a-z ]{0,80}x?y{3}", temperature: 2, seed: 5, raw: true }],
  ["ha ha ha", { regex: "( ha){1,20}!", temperature: 0, raw: true, logprobs: 0 }],
  ["ha ha ha ha", { raw: true, temperature: 0, maxTokens: 50, stop: ["ha ha ha ha", "zz"] }],
  ["one two one two one", { raw: true, temperature: 0, maxTokens: 70, frequencyPenalty: 0.3 }],
  ["one two one two one", { raw: true, seed: 8, maxTokens: 70, logitBias: { 300: 4, 301: 3.9 } }],
];

/** Returns a completion without its timings and its number of cached tokens. */
function essence({ timings: _, cachedPromptTokens: __, ...rest }: Completion) {
  return rest;
}

async function answers(model: Model): Promise<Completion[]> {
  return await Promise.all(
    REQUESTS.map(([prompt, options], i) => model.complete(prompt, { seed: i, ...options })),
  );
}

async function withModels(
  options: readonly LoadOptions[],
  fn: (models: readonly Model[]) => Promise<void>,
): Promise<void> {
  const models: Model[] = [];
  try {
    for (const each of options) {
      models.push(await load(DEMO, { device: "cpu", threads: 2, ...each }));
    }
    await fn(models);
  } finally {
    for (const model of models) await model[Symbol.asyncDispose]();
  }
}

Deno.test("draft tokens change no answer, one at a time, several, and all at once", async () => {
  await withModels([
    { speculate: "off" },
    ...[1, 2, 7, 32].flatMap((speculate) => [{ speculate }, { speculate, parallel: 1 }]),
    { speculate: "on", parallel: 3 },
  ], async ([plain, ...others]) => {
    const expected = await answers(plain!);
    assertEquals(expected.map(({ timings }) => timings.drafted), REQUESTS.map(() => 0));
    const reasons = new Set(expected.map(({ finishReason }) => finishReason));
    assertEquals(reasons, new Set(["stop", "length", "constraint_complete"]));
    for (const model of others) {
      const actual = await answers(model);
      assertEquals(actual.map(essence), expected.map(essence));
      for (const { timings } of actual) assert(timings.accepted <= timings.drafted);
      const accepted = actual.reduce((sum, { timings }) => sum + timings.accepted, 0);
      assert(accepted > 20, `only ${accepted} draft tokens accepted`);
    }
  });
});

Deno.test("draft tokens change no completion of completeMany, nor a later turn", async () => {
  await withModels([{ speculate: "off" }, { speculate: 6 }], async ([plain, other]) => {
    const many = (model: Model) => model.completeMany(STORY, 5, { seed: 9, maxTokens: 50 });
    const expected = await many(plain!);
    assertEquals((await many(other!)).map(essence), expected.map(essence));
    // The conversation continues from pages that hold only accepted draft tokens.
    const history = [
      { role: "user", content: STORY },
      { role: "assistant", content: expected[0]!.text },
      { role: "user", content: "Who is the story about?" },
    ] as const;
    const next = (model: Model) => model.complete([...history], { seed: 1, temperature: 0 });
    const answer = await next(other!);
    assertEquals(essence(answer), essence(await next(plain!)));
    assert(answer.cachedPromptTokens > 30);
  });
});

Deno.test("draft tokens change no answer after a saved prompt", async () => {
  using folder = new TempFolder();
  const path = `${folder.path}/prompt`;
  await withModels([{ speculate: 4 }, { speculate: "off" }, { speculate: 4 }], async (models) => {
    const [first, plain, second] = models;
    await first!.complete(STORY, { temperature: 0, maxTokens: 40 });
    await first!.savePrompt(path, STORY);
    await second!.loadPrompt(path);
    const next = (model: Model) =>
      model.complete(STORY, { seed: 1, temperature: 0, maxTokens: 60 });
    const answer = await next(second!);
    assertEquals(essence(answer), essence(await next(plain!)));
    assert(answer.cachedPromptTokens > 0 && answer.timings.drafted > 0);
  });
});

Deno.test("draft tokens change no answer of a model with a sliding window", async () => {
  using folder = new TempFolder();
  const config = { model_type: "mistral", sliding_window: 24 };
  writeRandomLlama(folder.path, { contextLength: 400, config });
  const generate = async (speculate: LoadOptions["speculate"]) => {
    await using model = await load(folder.path, { device: "cpu", threads: 1, speculate });
    const options = { raw: true, temperature: 0.4, seed: 2, maxTokens: 250, logprobs: 2 };
    return await model.complete("abcabcabcabc", options);
  };
  const plain = await generate("off");
  for (const length of [1, 5, 17]) {
    const answer = await generate(length);
    assertEquals(essence(answer), essence(plain));
    assert(answer.timings.drafted > 30, `only ${answer.timings.drafted} drafted`);
  }
});

Deno.test("invalid values of speculate are rejected", async () => {
  for (const speculate of [0, 33, 1.5, "always" as never]) {
    const error = await assertRejects(() => load(DEMO, { speculate }), ForgeError);
    assertEquals(error.code, "usage");
  }
});

Deno.test("the demo model's own layer drafts most tokens of its stories", async () => {
  await using model = await load(DEMO, { device: "cpu", threads: 2, speculate: 1 });
  let tokens = 0, accepted = 0;
  for (const [seed, animal] of ["fox", "dragon", "mouse"].entries()) {
    const prompt = `Tell me a story about a ${animal}.`;
    const { completionTokens, timings } = await model.complete(prompt, { seed, maxTokens: 150 });
    tokens += completionTokens;
    accepted += timings.accepted;
  }
  const perStep = tokens / (tokens - accepted);
  assert(perStep > 1.6, `${perStep} tokens a step`);
});

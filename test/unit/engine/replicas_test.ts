/** Tests models with several replicas: the same results as one. */
import { assert, assertEquals } from "@std/assert";
import type { Prompt } from "../../../src/engine/request/prompt.ts";
import { type Completion, load, type Model } from "../../../src/mod.ts";
import { Random } from "../../support/random.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";

/** Results of every kind of task. */
async function resultsOf(model: Model, prompts: readonly Prompt[]) {
  const texts = prompts.map(async (prompt, seed) => {
    const options = { seed, maxTokens: 12, temperature: seed % 2, raw: true };
    return (await model.complete(prompt, options)).tokenIds;
  });
  const tokens = Int32Array.from({ length: 40 }, (_, i) => 2 + i);
  return {
    texts: await Promise.all(texts),
    many: (await model.completeMany("many", 5, { seed: 1, maxTokens: 5, temperature: 1 })).map(
      ({ tokenIds }) => tokenIds,
    ),
    scores: await model.score(tokens),
    logits: await model.logits(tokens),
    vectors: await model.embed(["a text", "another", "and a third one"]),
  };
}

Deno.test("replicas on parts of the processor give the results of one", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("model"));
  const random = new Random("replicas");
  const prompts = Array.from(
    { length: 20 },
    () => Int32Array.from({ length: random.int(1, 150) }, () => random.int(2, 96)),
  );
  const options = { threads: 2, parallel: 3, contextLength: 256 };
  await using single = await load(folder.at("model"), { device: "cpu", ...options });
  await using several = await load(folder.at("model"), { devices: ["cpu", "cpu"], ...options });
  assertEquals(await resultsOf(several, prompts), await resultsOf(single, prompts));
  assertEquals(several.devices.map(({ threads }) => threads), [1, 1]);
  assertEquals([single.parallel, several.parallel], [3, 6]);
  const { weights, kvCache, states, activations } = single.memory;
  const { activations: more, ...twice } = several.memory;
  assertEquals(twice, { weights: 2 * weights, kvCache: 2 * kvCache, states });
  assert(more > activations, `${more} bytes of activations, ${activations} of one`);
  assertEquals([states, kvCache], [0, 768 * single.kvBytesPerToken]);
  // Three sequences of 256 tokens in each; what is cached of ended ones is free.
  assertEquals(single.kvTokens, { total: 768, free: 768 });
  assertEquals(several.kvTokens, { total: 1536, free: 1536 });
  // Parts of a processor share its memory.
  const total = single.deviceMemory.total;
  assertEquals([total > 0, several.deviceMemory.total], [true, total]);
  for (const model of [single, several]) {
    assertEquals([model.usesGpu, model.workingReplicas], [false, model === single ? 1 : 2]);
    assertEquals(model.streamedBytes, { all: 0, perToken: 0 });
  }
});

Deno.test("prompts in files serve all replicas", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("model"));
  const prompt = Int32Array.from({ length: 150 }, (_, i) => 2 + i % 90);
  const options = { device: "cpu", dataParallel: 2, threads: 2 };
  {
    await using model = await load(folder.at("model"), options);
    await model.savePrompt(folder.at("prompt"), prompt);
  }
  await using model = await load(folder.at("model"), options);
  assertEquals(await model.loadPrompt(folder.at("prompt")), prompt);
  // More at a time than fit one replica.
  const answers = await Promise.all(
    Array.from({ length: 40 }, () => model.complete(prompt, { maxTokens: 3, temperature: 0 })),
  );
  for (const { cachedPromptTokens } of answers) assertEquals(cachedPromptTokens, 149);
});

Deno.test("replicas share a folder of prompts", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("model"));
  const prompts = [0, 1, 2, 3].map((n) =>
    Int32Array.from({ length: 200 }, (_, i) => 2 + (i * (n + 3)) % 90)
  );
  const options = { device: "cpu", dataParallel: 2, threads: 2, kvDir: folder.at("kept") };
  const answer = async () => {
    await using model = await load(folder.at("model"), options);
    const answers: Completion[] = [];
    for (const prompt of prompts) {
      answers.push(await model.complete(prompt, { maxTokens: 3, temperature: 0 }));
    }
    return answers;
  };
  const first = await answer();
  const second = await answer();
  assertEquals(second.map(({ tokenIds }) => tokenIds), first.map(({ tokenIds }) => tokenIds));
  for (const { cachedPromptTokens } of second) assert(cachedPromptTokens >= 128);
});
